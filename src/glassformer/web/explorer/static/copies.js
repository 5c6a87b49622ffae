// @ts-check
// Buttons that copy: a formula, or the address of the view.

export function listenToCopies() {
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-copy], #share") : null;
    if (button instanceof HTMLButtonElement) void copy(button);
  });
}

/** @param {HTMLButtonElement} button */
async function copy(button) {
  const label = button.textContent ?? "";
  try {
    await navigator.clipboard.writeText(button.dataset.copy ?? location.href);
    button.textContent = "copied";
  } catch {
    button.textContent = "not allowed";
  }
  setTimeout(() => (button.textContent = label), 1200);
}
