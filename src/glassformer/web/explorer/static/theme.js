// @ts-check
// Light or dark: as the system says, until the button is pressed; remembered in this browser.

const KEY = "glassformer-theme";

export function listenToTheme() {
  apply(stored());
  document.getElementById("theme")?.addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
      (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    const next = dark ? "light" : "dark";
    apply(next);
    store(next);
  });
}

/** The theme of an earlier visit; a frame in a notebook has no storage. */
function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** @param {string} theme */
function store(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    return; // the choice ends with the frame
  }
}

/** @param {string | null} theme */
function apply(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
