// @ts-check
// The page: links and inputs change the address, and the server's panels of the new address take the old ones' place.

import { record, request, shown } from "./address.js";
import { arrive, placeOf, showStep } from "./arrival.js";
import { listenToCanvases } from "./canvas.js";
import { listenToExports } from "./exports.js";
import { listenToFold } from "./fold.js";
import { listenToForms } from "./forms.js";
import { listenToHover } from "./hover.js";
import { listenToKeys } from "./keys.js";
import { listenToLab } from "./lab.js";
import { listenToLines } from "./lines.js";
import { listenToJobs } from "./live.js";
import { listenToSliders, restoreSliders, settingsOfSliders } from "./output.js";
import { listenToTheme } from "./theme.js";
import { listenToTraining, updateTraining } from "./training.js";

const PAUSE = 160; // milliseconds without a key, after which an edited sentence is sent
const IDLE = 700; // milliseconds without a new view, after which an analysis begins that cannot give way
const FIELDS = ["source", "target", "mode", "run", "checkpoint"];
const LEVELS = ["model", "layer", "head", "matrix", "cell"];

/** @type {AbortController | null} */
let pending = null;
let timer = 0;

/**
 * Values of the inputs that the shown view has not answered yet, the last one edited at the end.
 * @type {Map<string, string>}
 */
const dirty = new Map();

/**
 * Show an address, which contains every edited input. An answer that is no page is a message; the view stays.
 * @param {string} address
 * @param {"push" | "replace" | "none"} history
 * @param {"first" | "whole"} part analyses that take long follow the first part
 */
async function show(address, history, part = "first") {
  pending?.abort();
  clearTimeout(timer);
  const mine = (pending = new AbortController());
  const sent = new Map(dirty);
  document.documentElement.toggleAttribute("data-busy", true);
  try {
    const answer = await request(address, { headers: { "x-fragment": part }, signal: mine.signal });
    if (answer.status === 401) throw new Error("The key of this page is no longer valid; open the printed address again.");
    const text = await answer.text();
    const page = new DOMParser().parseFromString(text, "text/html");
    if (mine !== pending) return;
    if (part === "whole" && answer.status === 503) {
      window.setTimeout(() => mine === pending && complete(), PAUSE); // another page's view came first
      return;
    }
    forget(sent); // also what fails: else every link would fail with it
    if (!page.querySelector("[data-slot]")) throw new Error(text.trim() || `The server answered ${answer.status}.`);
    if (history !== "none") record(address, history);
    const before = placeOf(document);
    await move(page);
    if (history === "push") arrive(before);
    if (part === "first") say(page.title.split(" · ")[0] ?? "");
    if (part === "first") complete();
    else window.setTimeout(() => mine === pending && complete(), PAUSE);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return;
    const message = error instanceof Error ? error.message : String(error);
    say(error instanceof TypeError ? "The server has ended; start glassformer explore again." : message, true);
  } finally {
    if (mine === pending) document.documentElement.toggleAttribute("data-busy", false);
  }
}

/** Ask for the analyses that the shown view lacks; for some of them when nothing has been done for a moment. */
function complete() {
  const ask = () => void show(shown() || "?", "none", "whole");
  if (document.querySelector("[data-pending='']")) ask();
  else if (document.querySelector("[data-pending]")) timer = window.setTimeout(() => !dirty.size && ask(), IDLE);
  else goOn();
}

/** Ask again for a view that is still being computed, unless another one is on its way. */
function goOn() {
  if (!document.querySelector("[data-again]") || dirty.size) return;
  timer = window.setTimeout(() => void show(shown() || "?", "none"), 50);
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
  const sliders = settingsOfSliders();
  const open = [...document.querySelectorAll("details[data-key][open]")].map((one) => one.getAttribute("data-key") ?? "");
  const typed = focused instanceof HTMLInputElement && focused.value !== focused.defaultValue ? focused.value : null;
  const values = FIELDS.map((name) => /** @type {const} */ ([name, field(page, name)?.value])); // before menus are emptied
  for (const slot of document.querySelectorAll("[data-slot]")) {
    const fresh = page.querySelector(`[data-slot="${slot.getAttribute("data-slot")}"]`);
    if (fresh && fresh.innerHTML !== slot.innerHTML) slot.replaceChildren(...fresh.childNodes);
  }
  for (const one of document.querySelectorAll("details[data-key]")) one.toggleAttribute("open", open.includes(one.getAttribute("data-key") ?? ""));
  restoreSliders(sliders);
  document.title = page.title;
  document.body.dataset.level = page.body.dataset.level;
  for (const [name, value] of values) copyValue(name, value, focused);
  updateTraining();
  showStep();
  if (editing) return;
  const same = key ? document.querySelector(`[data-key="${CSS.escape(key)}"], #${CSS.escape(key)}`) : null;
  if (typed !== null && same instanceof HTMLInputElement && same.type === "text") same.value = typed;
  const cell = document.querySelector(".numbers a[tabindex='0']");
  const title = document.getElementById("stage-title");
  const next = same ?? (changed && focused !== document.body ? (document.body.dataset.level === "cell" ? cell : title) : null);
  if (next instanceof HTMLElement || next instanceof SVGElement) next.focus({ preventScroll: same !== null });
  if (changed) document.querySelector(".stage")?.scrollTo(0, 0);
}

/**
 * Write the value of the answer into an input, unless it is being edited.
 * @param {string} name
 * @param {string | undefined} value
 * @param {Element | null} focused
 */
function copyValue(name, value, focused) {
  const here = field(document, name);
  const edit = dirty.get(name);
  if (value === undefined) return;
  if (here instanceof HTMLSelectElement) here.value = edit ?? value; // its options may be new ones
  else if (here && here !== focused && edit === undefined) here.value = value;
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

/** The address of the page with every edited input. */
function edited() {
  const query = new URLSearchParams(shown());
  for (const [name, value] of dirty) change(query, name, value);
  return `?${query}`;
}

/**
 * The address of a link with every edited input, except those that the link itself sets.
 * @param {string} address
 */
function followed(address) {
  const here = new URLSearchParams(shown());
  const query = new URLSearchParams(address);
  const edits = [...dirty].filter(([name]) => ["source", "run", "checkpoint"].includes(name) || (query.get(name) ?? "") === (here.get(name) ?? ""));
  for (const [name, value] of edits) change(query, name, value);
  return edits.length ? `?${query}` : address;
}

/**
 * Change one input of an address; what belongs to the old sentence is left out.
 * @param {URLSearchParams} query
 * @param {string} name
 * @param {string} value
 */
function change(query, name, value) {
  query.delete(name);
  if (value || name === "source") query.set(name, value); // an empty source gets a note
  if (name === "target") query.set("mode", "forced");
  if (name === "mode" && value === "forced") query.set("target", field(document, "target")?.value ?? "");
  if (name === "mode" && value !== "forced") query.delete("target");
  if (name === "run") query.delete("checkpoint"); // each run has its own
  if (name !== "checkpoint") for (const place of ["step", "row", "column", "gold", "position", "merge"]) query.delete(place);
}

/**
 * @param {EventTarget | null} input
 * @returns {input is HTMLInputElement | HTMLSelectElement}
 */
function note(input) {
  if (!(input instanceof HTMLInputElement || input instanceof HTMLSelectElement)) return false;
  dirty.delete(input.name); // set again at the end: of target and mode, the last one decides
  dirty.set(input.name, input.value);
  return true;
}

/**
 * Drop the edits that were sent, unless they have been changed since.
 * @param {Map<string, string>} sent
 */
function forget(sent) {
  for (const [name, value] of sent) if (dirty.get(name) === value) dirty.delete(name);
}

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const link = target?.closest("a[href], [data-href]");
  const address = link?.getAttribute("data-href") ?? link?.getAttribute("href") ?? "";
  if (!address.startsWith("?") || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  void show(followed(address), "push");
});

document.getElementById("input")?.addEventListener("input", (event) => {
  if (!note(event.target)) return;
  clearTimeout(timer);
  timer = window.setTimeout(() => void show(edited(), "replace"), event.target instanceof HTMLInputElement ? PAUSE : 0);
});
document.getElementById("input")?.addEventListener("submit", (event) => {
  event.preventDefault();
  if (note(document.activeElement)) void show(edited(), "push");
});
window.addEventListener("popstate", () => {
  dirty.clear();
  void show(shown() || "?", "none");
});

listenToFold();
listenToKeys();
listenToLab();
listenToHover();
listenToLines();
listenToExports();
listenToJobs();
listenToSliders();
listenToTheme();
listenToCanvases();
listenToTraining();
listenToForms();
showStep();
complete();
