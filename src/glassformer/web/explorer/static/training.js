// @ts-check
// The slider over the checkpoints of the run, which is the menu of checkpoints in another form; a button that plays
// them; and a look, now and then, for checkpoints that a running training has saved meanwhile.

import { request, shown } from "./address.js";

const LOOK = 5000; // milliseconds between two looks for new checkpoints
const FRAME = 900; // least milliseconds that a checkpoint stays while the training is played
const TICKS = 9; // steps that are written below the slider

let playing = 0;
let looking = false;

export function listenToTraining() {
  slider()?.addEventListener("input", () => choose(Number(slider()?.value)));
  document.getElementById("play")?.addEventListener("click", play);
  document.addEventListener("pointerdown", (event) => {
    if (event.target instanceof Element && event.target.closest("#input, #training")) stop();
  });
  updateTraining();
  setInterval(() => void look(), LOOK);
}

/** Make the slider what the menu is: as many places, and the chosen one. */
export function updateTraining() {
  const bar = document.getElementById("training-bar");
  const [range, list] = [slider(), menu()];
  if (!bar || !range || !list) return;
  const steps = [...list.options].map((one) => one.text);
  bar.hidden = steps.length < 2;
  range.max = String(Math.max(0, steps.length - 1));
  if (Number(range.value) !== list.selectedIndex) range.value = String(list.selectedIndex);
  range.setAttribute("aria-valuetext", steps[list.selectedIndex] ?? "");
  const output = bar.querySelector("output");
  if (output) output.textContent = (steps[list.selectedIndex] ?? "").replace(" · used", "");
  const ticks = document.getElementById("training-ticks");
  if (ticks && ticks.dataset.steps !== steps.join()) draw(ticks, steps);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const button = document.getElementById("play");
  if (!button) return;
  button.textContent = still ? "▶|" : playing ? "❚❚" : "▶";
  button.setAttribute("aria-label", still ? "next checkpoint" : playing ? "pause" : "play the training");
  button.title = button.getAttribute("aria-label") ?? "";
}

/** @returns {HTMLInputElement | null} */
const slider = () => document.querySelector("#training");

/** @returns {HTMLSelectElement | null} */
const menu = () => document.querySelector("#input [name=checkpoint]");

/**
 * Choose the checkpoint at a place of the menu, as if in the menu.
 * @param {number} place
 */
function choose(place) {
  const list = menu();
  if (!list || place === list.selectedIndex) return;
  list.selectedIndex = place;
  list.dispatchEvent(new Event("input", { bubbles: true }));
  updateTraining();
}

/** Show one checkpoint after the other, from the first if the last one is shown; one at a time without motion. */
function play() {
  if (playing) return stop();
  const last = (menu()?.options.length ?? 1) - 1;
  const start = (menu()?.selectedIndex ?? last) >= last ? 0 : (menu()?.selectedIndex ?? 0) + 1;
  choose(start);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  playing = window.setInterval(() => {
    if (document.documentElement.hasAttribute("data-busy")) return; // the one before has not come yet
    const place = menu()?.selectedIndex ?? last;
    if (place < (menu()?.options.length ?? 0) - 1) choose(place + 1);
    else stop();
  }, FRAME);
  updateTraining();
}

function stop() {
  clearInterval(playing);
  playing = 0;
  updateTraining();
}

/**
 * @param {HTMLElement} ticks
 * @param {string[]} steps
 */
function draw(ticks, steps) {
  ticks.dataset.steps = steps.join();
  const apart = Math.max(1, Math.ceil((steps.length - 1) / (TICKS - 1)));
  const shown = steps.map((text, place) => {
    const tick = document.createElement("li");
    tick.style.left = `${(100 * place) / Math.max(1, steps.length - 1)}%`;
    const end = place === steps.length - 1;
    const clear = place % apart === 0 && (end || steps.length - 1 - place >= apart);
    if (clear || end) tick.textContent = text.replace(/^step | · used$/g, "");
    if (place && !end) tick.className = "inner";
    return tick;
  });
  ticks.replaceChildren(...shown);
}

/** Put the checkpoints that there are now into the menu, if they are others; the chosen one stays chosen. */
async function look() {
  const list = menu();
  if (!list || looking || document.visibilityState !== "visible" || document.documentElement.hasAttribute("data-busy")) return;
  looking = true;
  try {
    const run = new URLSearchParams(shown()).get("run") ?? "";
    const answer = await request(`checkpoints?run=${encodeURIComponent(run)}`, { signal: AbortSignal.timeout(LOOK) });
    if (!answer.ok) return; // the next view says what is wrong
    /** @type {[string, string][]} */
    const found = await answer.json();
    const before = [...list.options].map((one) => one.text).join();
    if (before === found.map(([, label]) => label).join() || list !== menu() || list === document.activeElement) return;
    const chosen = list.value;
    const newest = found.filter(([name]) => ![...list.options].some((one) => one.value === name)).pop();
    list.replaceChildren(...found.map(([name, label]) => new Option(label, name, false, name === chosen)));
    if (!found.some(([name]) => name === chosen)) list.append(new Option(`${chosen} · deleted`, chosen, false, true));
    updateTraining();
    const status = document.getElementById("status");
    if (newest && status) status.textContent = `New checkpoint: ${newest[1]}`;
  } catch {
    // the server has ended or is busy: the next view says so
  } finally {
    looking = false;
  }
}
