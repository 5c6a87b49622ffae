// @ts-check
// A narrow window has one input in the header; a button unfolds the others.

export function listenToFold() {
  const root = document.documentElement;
  const button = document.getElementById("fold");
  if (!button) return;
  root.dataset.folds = ""; // without this script, all of them are there
  button.addEventListener("click", () => {
    const open = root.toggleAttribute("data-unfolded");
    button.setAttribute("aria-expanded", String(open));
  });
}
