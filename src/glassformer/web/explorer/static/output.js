// @ts-check
// The sliders of the output: temperature, top-k and top-p, computed here from the logits, without a request a move.

import { request } from "./address.js";

/** @typedef {{ temperature: number, topK: number, topP: number }} Settings */

/** @type {{ address: string, logits: Float64Array, order: Uint32Array } | null} */
let loaded = null;

export function listenToSliders() {
  document.addEventListener("input", (event) => {
    const panel = event.target instanceof Element && event.target.closest(".sliders") ? event.target.closest(".output") : null;
    if (panel instanceof HTMLElement) void update(panel);
  });
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-reset]") : null;
    const panel = button?.closest(".output");
    if (!(panel instanceof HTMLElement)) return;
    for (const input of panel.querySelectorAll("input")) input.value = input.defaultValue;
    void update(panel);
  });
}

/**
 * Values of the sliders that were moved, by name; they stay when another step takes the panel's place.
 * @returns {Map<string, string>}
 */
export function settingsOfSliders() {
  const inputs = /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll(".sliders input"));
  return new Map([...inputs].filter((one) => one.value !== one.defaultValue).map((one) => [one.name, one.value]));
}

/** @param {Map<string, string>} values */
export function restoreSliders(values) {
  const panel = document.querySelector(".output");
  if (!(panel instanceof HTMLElement) || !values.size) return;
  for (const [name, value] of values) {
    const input = panel.querySelector(`.sliders [name="${name}"]`);
    if (input instanceof HTMLInputElement) input.value = value;
  }
  void update(panel);
}

/** @param {HTMLElement} panel */
async function update(panel) {
  const address = panel.dataset.logits ?? "";
  if (loaded?.address !== address) {
    const answer = await request(address);
    if (!answer.ok) return;
    const logits = Float64Array.from(readFloats(await answer.arrayBuffer()));
    const order = Uint32Array.from(logits, (_, index) => index).sort((a, b) => logits[b] - logits[a] || a - b);
    loaded = { address, logits, order };
  }
  const settings = read(panel);
  write(panel, distribution(loaded.logits, loaded.order, settings), settings);
}

/** @param {ArrayBuffer} bytes */
function readFloats(bytes) {
  const view = new DataView(bytes);
  return Array.from({ length: bytes.byteLength / 4 }, (_, index) => view.getFloat32(4 * index, true));
}

/**
 * @param {HTMLElement} panel
 * @returns {Settings}
 */
function read(panel) {
  /** @param {string} name */
  const value = (name) => Number(/** @type {HTMLInputElement} */ (panel.querySelector(`[name=${name}]`)).value);
  const size = Number(panel.dataset.size);
  const place = value("top_k");
  const topK = place >= 100 ? size : Math.max(1, Math.round(size ** (place / 100)));
  return { temperature: value("temperature"), topK, topP: value("top_p") };
}

/**
 * Softmax of the logits divided by the temperature; then the k largest, with ties; then the smallest set of the largest
 * that holds p; what is left is divided by its sum.
 * @param {Float64Array} logits
 * @param {Uint32Array} order indices, the largest logit first
 * @param {Settings} settings
 */
export function distribution(logits, order, { temperature, topK, topP }) {
  const largest = logits[order[0]];
  const least = logits[order[Math.min(topK, order.length) - 1]];
  const powers = logits.map((one) => (one < least ? 0 : Math.exp((one - largest) / temperature)));
  const total = powers.reduce((sum, one) => sum + one, 0);
  let before = 0;
  for (const index of order) {
    const share = powers[index] / total;
    if (before >= topP) powers[index] = 0;
    before += share;
  }
  const remaining = powers.reduce((sum, one) => sum + one, 0);
  return powers.map((one) => one / remaining);
}

/**
 * @param {HTMLElement} panel
 * @param {Float64Array} probabilities
 * @param {Settings} settings
 */
function write(panel, probabilities, settings) {
  let listed = 0;
  for (const row of panel.querySelectorAll(".candidates li")) {
    if (!(row instanceof HTMLElement)) continue;
    const value = probabilities[Number(row.dataset.index)];
    listed += value;
    row.dataset.probability = String(value);
    row.classList.toggle("removed", value === 0);
    row.querySelector("rect")?.setAttribute("width", (100 * value).toFixed(2));
    const text = row.querySelector(".probability");
    if (text) text.textContent = value === 0 ? "–" : value.toFixed(4);
  }
  const left = probabilities.filter((one) => one > 0).length;
  const entropy = probabilities.reduce((sum, one) => (one > 0 ? sum - one * Math.log(one) : sum), 0);
  for (const place of panel.querySelectorAll("[data-others]")) place.textContent = Math.max(0, 1 - listed).toFixed(4);
  set(panel, "[data-entropy]", entropy.toFixed(2));
  writeTerms(panel, probabilities, entropy);
  set(panel, "[data-left]", left === 1 ? "1 word can be drawn" : `${left.toLocaleString("en")} words can be drawn`);
  set(panel, "output[for=temperature]", settings.temperature.toFixed(2));
  set(panel, "output[for=top_k]", settings.topK >= probabilities.length ? "all" : settings.topK.toLocaleString("en"));
  set(panel, "output[for=top_p]", settings.topP.toFixed(2));
}

/**
 * The terms of the entropy, in the table below it.
 * @param {HTMLElement} panel
 * @param {Float64Array} probabilities
 * @param {number} entropy
 */
function writeTerms(panel, probabilities, entropy) {
  let listed = 0;
  for (const row of panel.querySelectorAll(".entropy tr[data-index]")) {
    if (!(row instanceof HTMLElement)) continue;
    const value = probabilities[Number(row.dataset.index)];
    const term = value > 0 ? -value * Math.log(value) : 0;
    listed += term;
    set(row, "[data-p]", value.toFixed(4));
    set(row, "[data-term]", term.toFixed(4));
  }
  set(panel, "[data-rest]", Math.max(0, entropy - listed).toFixed(4));
}

/**
 * @param {HTMLElement} panel
 * @param {string} selector
 * @param {string} text
 */
function set(panel, selector, text) {
  const found = panel.querySelector(selector);
  if (found) found.textContent = text;
}
