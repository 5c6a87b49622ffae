// @ts-check
// The address of the shown view, and requests to the server. In a notebook, frame.js takes the place of this file.

/** The query of the shown view with its question mark; empty for the first view. */
export function shown() {
  return location.search;
}

/**
 * Make ``address`` that of the page.
 * @param {string} address
 * @param {"push" | "replace"} history
 */
export function record(address, history) {
  if (history === "push") window.history.pushState(null, "", address);
  else window.history.replaceState(null, "", address);
}

/**
 * The server's answer.
 * @param {string} address
 * @param {RequestInit} [options]
 */
export function request(address, options) {
  return fetch(address, options);
}
