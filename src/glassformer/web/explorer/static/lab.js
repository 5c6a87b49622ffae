// @ts-check
// The lab: the second sentence, and the bars of a row of attention. Both lead to an address, like a link.

import { shown } from "./address.js";
import { follow } from "./forms.js";

const PAUSE = 150; // milliseconds after the last change of a weight
const UNITS = 1000;

let timer = 0;

export function listenToLab() {
  document.addEventListener("submit", (event) => {
    if (!(event.target instanceof HTMLFormElement) || !event.target.matches(".donor")) return;
    event.preventDefault();
    compare(event.target);
  });
  for (const kind of ["input", "change"]) {
    document.addEventListener(kind, (event) => {
      if (!(event.target instanceof HTMLInputElement)) return;
      const form = event.target.closest("form.donor");
      if (form instanceof HTMLFormElement && kind === "change") compare(form);
      const editor = event.target.closest(".row-editor");
      const bar = event.target.type === "range";
      if (!(editor instanceof HTMLElement) || (!bar && kind === "input")) return; // half a number is no weight
      move(editor, event.target);
      if (kind === "change") send(editor); // not while a bar is dragged: a new page would take it away
    });
  }
}

/**
 * Go to the address with the second sentence of a form.
 * @param {HTMLFormElement} form
 */
function compare(form) {
  const query = new URLSearchParams(shown());
  const donor = String(new FormData(form).get("donor") ?? "");
  if (donor === (query.get("donor") ?? "")) return;
  query.delete("donor");
  if (donor) query.set("donor", donor);
  follow(`?${query}`);
}

/**
 * Write the row in which one bar or number has its new value.
 * @param {HTMLElement} editor
 * @param {HTMLInputElement} input
 */
function move(editor, input) {
  const { ranges, numbers, units } = row(editor);
  const moved = Math.max(ranges.indexOf(input), numbers.indexOf(input));
  const value = input.type === "range" ? Number(input.value) : Math.round(UNITS * Number(input.value));
  const allowed = ranges.map((one) => !one.disabled);
  for (const [place, one] of renormalized(units, moved, value, allowed).entries()) {
    ranges[place].value = String(one);
    if (numbers[place] !== input) numbers[place].value = (one / UNITS).toFixed(3);
    ranges[place].dataset.units = String(one);
  }
}

/**
 * Inputs of a row, and its weights in thousandths, which a bar rounds.
 * @param {HTMLElement} editor
 */
function row(editor) {
  const ranges = /** @type {HTMLInputElement[]} */ ([...editor.querySelectorAll(".bars input[type=range]")]);
  const numbers = /** @type {HTMLInputElement[]} */ ([...editor.querySelectorAll(".bars input[type=number]")]);
  return { ranges, numbers, units: ranges.map((one) => Number(one.dataset.units)) };
}

/**
 * Go to the address with the row, after a pause: an arrow key repeats.
 * @param {HTMLElement} editor
 */
function send(editor) {
  const base = new URLSearchParams(editor.dataset.base);
  base.append("edit", `${editor.dataset.place}:${row(editor).units.join("-")}`);
  clearTimeout(timer);
  timer = window.setTimeout(() => editor.isConnected && follow(`?${base}`), PAUSE); // not from a view that has gone
}

/**
 * The row in which one weight is ``value``, and the others keep their shares of what is left.
 * @param {number[]} units thousandths
 * @param {number} moved
 * @param {number} value
 * @param {boolean[]} allowed
 */
export function renormalized(units, moved, value, allowed) {
  const wanted = Math.min(UNITS, Math.max(0, value));
  const others = units.reduce((sum, one, place) => (place === moved ? sum : sum + one), 0);
  const count = allowed.filter((one, place) => one && place !== moved).length;
  if (!count) return units.map((_, place) => (place === moved ? UNITS : 0));
  const share = (/** @type {number} */ one) => (others ? one / others : 1 / count);
  return units.map((one, place) =>
    place === moved ? wanted : allowed[place] ? Math.round((UNITS - wanted) * share(one)) : 0,
  );
}
