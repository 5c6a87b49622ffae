// Light and dark, the way along a chain of formulas, and everything open on paper.

const theme = document.querySelector(".theme");
const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const name = () => { theme.textContent = dark() ? "light mode" : "dark mode"; };
theme.hidden = false;
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  name();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
name();

const formulas = new Map([...document.querySelectorAll(".formula")].map((figure) => [figure.dataset.place, figure]));
for (const figure of document.querySelectorAll(".formula[data-next]")) {
  for (const number of figure.querySelectorAll("mn[data-place]")) {
    if (number.dataset.place === figure.dataset.next) number.classList.add("next");
  }
}
for (const number of document.querySelectorAll("mn[data-place]")) {
  const figure = formulas.get(number.dataset.place);
  if (!figure) continue;
  number.addEventListener("click", () => {
    figure.scrollIntoView({ block: "center" });
    figure.focus({ preventScroll: true });
  });
}

document.querySelector(".way").open = matchMedia("(min-width: 66rem)").matches;

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
