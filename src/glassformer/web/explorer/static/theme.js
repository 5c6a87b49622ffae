// @ts-check
// Light or dark: as the system says, until the button is pressed; remembered in this browser.

const KEY = "glassformer-theme";

export function listenToTheme() {
  apply(localStorage.getItem(KEY));
  document.getElementById("theme")?.addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
      (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    const next = dark ? "light" : "dark";
    localStorage.setItem(KEY, next);
    apply(next);
  });
}

/** @param {string | null} theme */
function apply(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
