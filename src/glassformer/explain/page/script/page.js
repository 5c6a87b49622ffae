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

// Mark the section in view in the table of contents, and keep its entry visible there.
const way = document.querySelector(".way");
const wide = matchMedia("(min-width: 66rem)");
way.open = wide.matches;
wide.addEventListener("change", () => { way.open = wide.matches; });
const entries = [...way.querySelectorAll("a")].map((link) => [link, document.querySelector(link.getAttribute("href"))]);
const here = way.querySelector(".here");
let current = null;
let due = false;

function follow() {
  due = false;
  const edge = innerHeight / 3;
  const passed = entries.filter(([, section]) => section.getBoundingClientRect().top <= edge);
  const atEnd = scrollY > 0 && innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const [link] = atEnd ? entries[entries.length - 1] : passed[passed.length - 1] || [null];
  if (link === current) return;
  if (current) current.removeAttribute("aria-current");
  current = link;
  here.textContent = link ? link.textContent.trim().replace(/\s+/g, " ") : "";
  if (!link) return;
  link.setAttribute("aria-current", "true");
  const list = link.closest(wide.matches ? ".side" : ".contents");
  const offset = link.getBoundingClientRect().top - list.getBoundingClientRect().top;
  if (offset < 0 || offset > list.clientHeight - 40) list.scrollTop += offset - list.clientHeight / 2;
}

addEventListener("scroll", () => {
  if (!due) requestAnimationFrame(follow);
  due = true;
}, { passive: true });
way.addEventListener("click", (event) => { if (!wide.matches && event.target.closest("a")) way.open = false; });
follow();

addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
