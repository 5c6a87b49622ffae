// @ts-check
// The page: links and inputs change the address, and the server's panels of the new address take the old ones' place.

import { listenToCopies } from "./copies.js";
import { listenToHover } from "./hover.js";
import { listenToKeys } from "./keys.js";
import { listenToSliders } from "./output.js";
import { listenToTheme } from "./theme.js";

const PAUSE = 160; // milliseconds without a key, after which an edited sentence is sent
const LEVELS = ["model", "layer", "head", "matrix", "cell"];

/** @type {AbortController | null} */
let pending = null;

/**
 * Show an address.
 * @param {string} address
 * @param {"push" | "replace" | "none"} history
 */
async function show(address, history) {
  pending?.abort();
  const request = (pending = new AbortController());
  document.documentElement.toggleAttribute("data-busy", true);
  try {
    const answer = await fetch(address, { headers: { "x-fragment": "1" }, signal: request.signal });
    if (answer.status === 401) throw new Error("The key of this page is no longer valid; open the printed address again.");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (request !== pending) return;
    if (history === "push") window.history.pushState(null, "", address);
    if (history === "replace") window.history.replaceState(null, "", address);
    await move(page);
    say(page.title.split(" · ")[0] ?? "");
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return;
    say(error instanceof TypeError ? "The server has ended; start glassformer explore again." : String(error), true);
  } finally {
    if (request === pending) document.documentElement.toggleAttribute("data-busy", false);
  }
}

/**
 * Replace the panels, with a transition where the browser has one and motion is wanted.
 * @param {Document} page
 */
async function move(page) {
  const before = LEVELS.indexOf(document.body.dataset.level ?? "");
  const after = LEVELS.indexOf(page.body.dataset.level ?? "");
  document.documentElement.dataset.zoom = after > before ? "in" : after < before ? "out" : "none";
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (still || before === after || !("startViewTransition" in document)) {
    swap(page);
    return;
  }
  const transition = document.startViewTransition(() => swap(page));
  transition.ready.catch(() => undefined); // the next view came before this one had moved
  await transition.updateCallbackDone;
}

/**
 * Replace what differs; keep the focus where the same thing still is.
 * @param {Document} page
 */
function swap(page) {
  const focused = document.activeElement instanceof Element ? document.activeElement : null;
  const key = focused?.getAttribute("data-key") ?? focused?.id ?? "";
  const editing = focused?.closest("#input") !== null && focused?.closest("#input") !== undefined;
  const changed = document.body.dataset.level !== page.body.dataset.level;
  for (const slot of document.querySelectorAll("[data-slot]")) {
    const fresh = page.querySelector(`[data-slot="${slot.getAttribute("data-slot")}"]`);
    if (fresh && fresh.innerHTML !== slot.innerHTML) slot.replaceChildren(...fresh.childNodes);
  }
  document.title = page.title;
  document.body.dataset.level = page.body.dataset.level;
  for (const name of ["source", "target", "mode", "checkpoint"]) copyValue(page, name, focused);
  if (editing) return;
  const same = key ? document.querySelector(`[data-key="${CSS.escape(key)}"], #${CSS.escape(key)}`) : null;
  const cell = document.querySelector(".numbers a[tabindex='0']");
  const title = document.getElementById("stage-title");
  const next = same ?? (changed && focused !== document.body ? (document.body.dataset.level === "cell" ? cell : title) : null);
  if (next instanceof HTMLElement || next instanceof SVGElement) next.focus({ preventScroll: same !== null });
  if (changed) document.querySelector(".stage")?.scrollTo(0, 0);
}

/**
 * @param {Document} page
 * @param {string} name
 * @param {Element | null} focused
 */
function copyValue(page, name, focused) {
  const here = field(document, name);
  const there = field(page, name);
  if (here && there && here !== focused) here.value = there.value;
}

/**
 * @param {Document} page
 * @param {string} name
 * @returns {HTMLInputElement | HTMLSelectElement | null}
 */
function field(page, name) {
  return page.querySelector(`#input [name="${name}"]`);
}

/**
 * @param {string} text
 * @param {boolean} seen
 */
function say(text, seen = false) {
  const status = document.getElementById("status");
  if (!status) return;
  status.textContent = text;
  status.classList.toggle("spoken", !seen);
}

/** The address of the page with one input changed; what belongs to the old sentence is left out.
 * @param {string} name
 * @param {string} value
 */
function edited(name, value) {
  const query = new URLSearchParams(location.search);
  query.delete(name);
  if (value) query.set(name, value);
  if (name === "target") query.set("mode", "forced");
  if (name === "mode" && value === "forced") query.set("target", field(document, "target")?.value ?? "");
  if (name === "mode" && value !== "forced") query.delete("target");
  if (name !== "checkpoint") for (const place of ["step", "row", "column"]) query.delete(place);
  return `?${query}`;
}

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const link = target?.closest("a[href], [data-href]");
  const address = link?.getAttribute("data-href") ?? link?.getAttribute("href") ?? "";
  if (!address.startsWith("?") || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  void show(address, "push");
});

let timer = 0;
document.getElementById("input")?.addEventListener("input", (event) => {
  const input = event.target;
  if (!(input instanceof HTMLInputElement || input instanceof HTMLSelectElement)) return;
  clearTimeout(timer);
  const pause = input instanceof HTMLInputElement ? PAUSE : 0;
  timer = window.setTimeout(() => void show(edited(input.name, input.value), "replace"), pause);
});
document.getElementById("input")?.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  const input = document.activeElement;
  if (input instanceof HTMLInputElement) void show(edited(input.name, input.value), "push");
});
window.addEventListener("popstate", () => void show(location.search || "?", "none"));

listenToKeys();
listenToHover();
listenToCopies();
listenToSliders();
listenToTheme();
