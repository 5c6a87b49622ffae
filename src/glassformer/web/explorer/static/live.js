// @ts-check
// Jobs of the server: while one runs, the page asks for its state, and puts the answer in the place of the old one.

import { request, shown } from "./address.js";

const SOON = 160; // milliseconds
let timer = 0;

/** Start to watch the stage: a view with ``data-live`` is asked for again after so many milliseconds. */
export function listenToJobs() {
  const stage = document.querySelector("[data-slot=stage]");
  if (!stage) return;
  new MutationObserver(plan).observe(stage, { childList: true });
  plan();
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-post]") : null;
    if (button instanceof HTMLButtonElement) void post(button);
  });
}

function plan() {
  clearTimeout(timer);
  const view = document.querySelector("[data-live]");
  if (view instanceof HTMLElement) timer = window.setTimeout(() => void refresh(), Number(view.dataset.live));
}

/** The state of the job of this address; an answer that comes after the address has changed is dropped. */
async function refresh() {
  const address = shown();
  try {
    const answer = await request(address || "?", { headers: { "x-fragment": "1" } });
    if (answer.status === 503) {
      clearTimeout(timer);
      timer = window.setTimeout(() => void refresh(), SOON); // another page's view came first
      return;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main .atlas");
    const old = document.querySelector("main .atlas");
    if (!fresh || !old || shown() !== address) return;
    replace(old, fresh);
  } catch {
    return; // the server has ended, or the network; the next action says so
  }
  plan();
}

/**
 * Replace all parts but the form, which stays where it is: a form that moves loses the focus and what is being typed.
 * @param {Element} old
 * @param {Element} fresh
 */
function replace(old, fresh) {
  const key = document.activeElement?.getAttribute("data-key") ?? "";
  const form = old.querySelector(":scope > form");
  const parts = [...fresh.childNodes];
  const place = parts.findIndex((part) => part.nodeName === "FORM");
  if (form && place >= 0) {
    for (const part of [...old.childNodes]) if (part !== form) part.remove();
    form.before(...parts.slice(0, place));
    form.after(...parts.slice(place + 1));
  } else old.replaceChildren(...parts);
  const live = fresh.getAttribute("data-live");
  if (live === null) old.removeAttribute("data-live");
  else old.setAttribute("data-live", live);
  const same = key ? old.querySelector(`[data-key="${CSS.escape(key)}"]`) : null;
  if (same instanceof HTMLElement) same.focus({ preventScroll: true });
}

/** @param {HTMLButtonElement} button */
async function post(button) {
  button.disabled = true;
  try {
    await request(`${button.dataset.post}${shown()}`, { method: "POST" });
  } finally {
    await refresh();
  }
}
