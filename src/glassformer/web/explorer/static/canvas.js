// @ts-check
// A large matrix on a canvas, from raw numbers: pooled by the server, every number after a zoom. The pointer and the
// keyboard name a row, a column and its value, without a request.

import { request } from "./address.js";

/** @typedef {{ top: number, left: number, height: number, width: number }} Region */
/**
 * Numbers of a region, one for each block of `down` rows and `across` columns.
 * @typedef {Region & { rows: number, columns: number, down: number, across: number, values: Float32Array, image: HTMLCanvasElement | null }} Tile
 */
/** @typedef {{ row: number, column: number }} Cell */

const LARGEST_SIDE = 256; // rows and columns of an answer, as in panels/canvas.py
const STEP = 64; // tiles begin at multiples of it, so that a small move needs no request
const LEAST = 8; // rows and columns of the closest view
const MATRICES = 4; // of which the numbers stay here

/** @type {Map<string, Tile[]>} */
const loaded = new Map();
/** The plot of the page, and the region of the one before it. @type {Plot | null} */
let current = null;

export function listenToCanvases() {
  const stage = document.querySelector("[data-slot=stage]");
  if (stage) new MutationObserver(start).observe(stage, { childList: true });
  const recolor = () => current?.recolor();
  new MutationObserver(recolor).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
    matchMedia(query).addEventListener("change", recolor);
  }
  start();
}

function start() {
  const element = document.querySelector(".plot");
  if (current?.element === element) return;
  const before = current;
  before?.stop();
  current = element instanceof HTMLElement ? new Plot(element, before) : null;
}

/** One matrix: `view` is the visible region, `cursor` the cell of the keyboard, `hover` that of the pointer. */
class Plot {
  /**
   * @param {HTMLElement} element
   * @param {Plot | null} before
   */
  constructor(element, before) {
    this.element = element;
    this.canvas = /** @type {HTMLCanvasElement} */ (element.querySelector("canvas"));
    this.rows = Number(element.dataset.rows);
    this.columns = Number(element.dataset.columns);
    this.high = Number(element.dataset.high);
    this.signed = element.dataset.kind !== "weights";
    this.address = element.dataset.numbers ?? "";
    this.labels = [element.dataset.rowLabels, element.dataset.columnLabels].map((text) => (text ? text.split("\n") : []));
    /** @type {Cell} */
    this.cursor = { row: Number(element.dataset.row), column: Number(element.dataset.column) };
    /** @type {Cell | null} */
    this.hover = null;
    /** @type {Region} */
    this.view = { top: 0, left: 0, height: this.rows, width: this.columns };
    if (before?.rows === this.rows && before.columns === this.columns) this.view = before.view;
    /** @type {number[][] | null} */
    this.colors = null;
    /** @type {{ x: number, y: number, view: Region, moved: boolean } | null} */
    this.drag = null;
    this.tiles = remember(this.address);
    this.pending = new Set();
    this.stopping = new AbortController();
    this.resizing = new ResizeObserver(() => this.resize());
    this.resizing.observe(this.canvas);
    this.listen();
    this.keepInView();
    void this.load({ top: 0, left: 0, height: this.rows, width: this.columns });
    this.show();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("click", (event) => this.click(event));
    for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, () => this.draw());
    for (const button of this.element.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this.zoom(button.getAttribute("data-zoom") ?? ""));
    }
  }

  stop() {
    this.stopping.abort();
    this.resizing.disconnect();
  }

  /** True if every number of the view is drawn. */
  get exact() {
    return this.view.height <= LARGEST_SIDE && this.view.width <= LARGEST_SIDE;
  }

  resize() {
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(this.canvas.clientWidth * scale));
    this.canvas.height = Math.max(1, Math.round(this.canvas.clientHeight * scale));
    this.draw();
  }

  recolor() {
    this.colors = null;
    for (const tile of this.tiles) tile.image = null;
    this.draw();
  }

  /** Request the numbers of the view, and draw it. */
  show() {
    void this.load(tileOf(this.view, this.rows, this.columns));
    this.draw();
    const { top, left, height, width } = this.view;
    const blocks = this.exact ? "every number is drawn" : `each block of ${Math.ceil(height / LARGEST_SIDE)} × ${Math.ceil(width / LARGEST_SIDE)} shows its largest number; zoom in for every one`;
    const extent = this.element.querySelector("[data-extent]");
    if (extent) extent.textContent = `Rows ${top} to ${top + height - 1} of ${this.rows}, columns ${left} to ${left + width - 1} of ${this.columns}: ${blocks}.`;
    this.read();
  }

  /** @param {Region} region */
  async load(region) {
    const query = new URLSearchParams(Object.entries(region).map(([name, value]) => [name, String(value)]));
    const address = `${this.address}&${query}`;
    if (this.pending.has(address) || this.tiles.some((one) => isSame(one, region))) return;
    this.pending.add(address);
    try {
      const answer = await request(address, { signal: this.stopping.signal });
      if (!answer.ok) throw new Error(await answer.text());
      this.tiles.push(tileFrom(region, await answer.arrayBuffer()));
      this.tiles.sort((one, other) => other.down * other.across - one.down * one.across);
      this.draw();
      this.read();
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      this.write(error instanceof TypeError ? "The server has ended; start glassformer explore again." : String(error));
    } finally {
      this.pending.delete(address);
    }
  }

  draw() {
    const context = this.canvas.getContext("2d");
    if (!context) return;
    const { view } = this;
    const down = this.canvas.height / view.height;
    const across = this.canvas.width / view.width;
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.colors ??= this.palette();
    for (const tile of this.tiles) {
      tile.image ??= paint(tile, this.colors, this.high, this.signed);
      const x = (tile.left - view.left) * across;
      const y = (tile.top - view.top) * down;
      context.drawImage(tile.image, x, y, tile.columns * tile.across * across, tile.rows * tile.down * down);
    }
    const shown = this.hover ?? this.cursor;
    const { region } = this.at(shown);
    const scale = devicePixelRatio || 1;
    const box = [(region.left - view.left) * across, (region.top - view.top) * down, region.width * across, region.height * down];
    const style = getComputedStyle(this.element);
    for (const [width, color] of /** @type {[number, string][]} */ ([[4, style.backgroundColor], [2, style.color]])) {
      context.lineWidth = width * scale;
      context.strokeStyle = color;
      context.strokeRect(box[0] - scale, box[1] - scale, box[2] + 2 * scale, box[3] + 2 * scale);
    }
  }

  /**
   * The number at a cell: of the finest block that is here, with the region that it stands for.
   * @param {Cell} cell
   * @returns {{ region: Region, value: number | null }}
   */
  at({ row, column }) {
    const tile = this.tiles.findLast((one) => row >= one.top && row < one.top + one.height && column >= one.left && column < one.left + one.width);
    if (!tile) return { region: { top: row, left: column, height: 1, width: 1 }, value: null };
    const down = Math.floor((row - tile.top) / tile.down);
    const across = Math.floor((column - tile.left) / tile.across);
    const top = tile.top + down * tile.down;
    const left = tile.left + across * tile.across;
    const height = Math.min(tile.down, tile.top + tile.height - top);
    const width = Math.min(tile.across, tile.left + tile.width - left);
    return { region: { top, left, height, width }, value: tile.values[down * tile.columns + across] };
  }

  /** Name the cell under the pointer, or that of the keyboard. */
  read() {
    const cell = this.hover ?? this.cursor;
    const { region, value } = this.at(cell);
    const names = [this.element.dataset.rowName, this.element.dataset.columnName];
    const places = [[region.top, region.height], [region.left, region.width]];
    const where = places.map(([first, count], axis) => `${names[axis]} ${this.place(axis, first, count)}`).join(", ");
    const largest = region.height * region.width > 1 ? "largest of its block " : "";
    this.write(value === null ? `${where}: loading` : `${where}: ${largest}${text(value)}`);
    const output = this.output;
    output.dataset.value = value === null ? "" : String(value);
    output.dataset.cell = `${cell.row},${cell.column}`;
    const open = this.element.querySelector(".plot-open");
    if (!(open instanceof HTMLAnchorElement)) return;
    open.hidden = region.height * region.width > 1;
    open.href = `${this.element.dataset.place}&row=${this.cursor.row}&column=${this.cursor.column}`;
  }

  /**
   * @param {number} axis
   * @param {number} first
   * @param {number} count
   */
  place(axis, first, count) {
    /** @param {number} index */
    const named = (index) => (this.labels[axis][index] === undefined ? String(index) : `${index} “${this.labels[axis][index]}”`);
    return count > 1 ? `${named(first)} to ${named(first + count - 1)}` : named(first);
  }

  get output() {
    return /** @type {HTMLOutputElement} */ (this.element.querySelector("output"));
  }

  /** @param {string} message */
  write(message) {
    this.output.textContent = message;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const down = Math.ceil(this.view.height / LARGEST_SIDE);
    const across = Math.ceil(this.view.width / LARGEST_SIDE);
    /** @type {Record<string, [number, number]>} */
    const moves = {
      ArrowUp: [-down, 0],
      ArrowDown: [down, 0],
      ArrowLeft: [0, -across],
      ArrowRight: [0, across],
      PageUp: [-this.view.height, 0],
      PageDown: [this.view.height, 0],
      Home: [0, -this.columns],
      End: [0, this.columns],
    };
    /** @type {Record<string, string>} */
    const zooms = { "+": "in", "=": "in", "-": "out", "0": "whole" };
    if (event.key in moves) {
      const [rows, columns] = moves[event.key];
      this.cursor = { row: clamp(this.cursor.row + rows, 0, this.rows - 1), column: clamp(this.cursor.column + columns, 0, this.columns - 1) };
      this.hover = null;
      this.keepInView();
      this.show();
    } else if (event.key in zooms) {
      this.hover = null;
      this.zoom(zooms[event.key]);
    } else if (event.key === "Enter") {
      this.open();
    } else return;
    event.preventDefault();
  }

  open() {
    const link = this.element.querySelector(".plot-open");
    if (link instanceof HTMLAnchorElement && !link.hidden) link.click();
    else this.zoom("in");
  }

  /** @param {string} way */
  zoom(way) {
    const factor = way === "in" ? 0.5 : way === "out" ? 2 : Infinity;
    const height = clamp(Math.ceil(this.view.height * factor), Math.min(LEAST, this.rows), this.rows);
    const width = clamp(Math.ceil(this.view.width * factor), Math.min(LEAST, this.columns), this.columns);
    const { row, column } = this.cursor;
    this.view = this.inside({ top: row - (height >> 1), left: column - (width >> 1), height, width });
    this.show();
  }

  /**
   * The nearest region of the same size within the matrix.
   * @param {Region} region
   */
  inside({ top, left, height, width }) {
    return { top: clamp(top, 0, this.rows - height), left: clamp(left, 0, this.columns - width), height, width };
  }

  keepInView() {
    const { top, left, height, width } = this.view;
    const { row, column } = this.cursor;
    const moved = { top: Math.min(Math.max(top, row - height + 1), row), left: Math.min(Math.max(left, column - width + 1), column) };
    this.view = this.inside({ ...moved, height, width });
  }

  /** @param {MouseEvent} event */
  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = this.view.top + Math.floor(((event.clientY - box.top) / box.height) * this.view.height);
    const column = this.view.left + Math.floor(((event.clientX - box.left) / box.width) * this.view.width);
    return { row: clamp(row, 0, this.rows - 1), column: clamp(column, 0, this.columns - 1) };
  }

  /** @param {PointerEvent} event */
  move(event) {
    const { drag } = this;
    if (drag && event.buttons & 1) {
      const box = this.canvas.getBoundingClientRect();
      const rows = Math.round(((drag.y - event.clientY) / box.height) * drag.view.height);
      const columns = Math.round(((drag.x - event.clientX) / box.width) * drag.view.width);
      drag.moved ||= Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4;
      if (!drag.moved) return;
      this.view = this.inside({ ...drag.view, top: drag.view.top + rows, left: drag.view.left + columns });
      this.show();
      return;
    }
    this.hover = this.cellAt(event);
    this.draw();
    this.read();
  }

  leave() {
    this.hover = null;
    this.draw();
    this.read();
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button === 0 && event.pointerType === "mouse") this.drag = { x: event.clientX, y: event.clientY, view: this.view, moved: false };
  }

  /** @param {MouseEvent} event */
  click(event) {
    const moved = this.drag?.moved;
    this.drag = null;
    if (moved) return;
    this.cursor = this.cellAt(event);
    this.hover = null;
    this.read();
    this.open();
  }

  /** Colors of the levels as in tables, then that of what is not finite; the system's own if it forces them. */
  palette() {
    const style = getComputedStyle(this.element);
    const [ink, card, line] = [style.color, style.backgroundColor, style.borderTopColor].map(parts);
    const count = this.signed ? 25 : 32;
    const levels = Array.from({ length: count }, (_, level) => level);
    const probe = document.createElement("i");
    this.element.append(probe);
    const forced = matchMedia("(forced-colors: active)").matches;
    const colors = levels.map((level) => {
      probe.className = `${this.signed ? "s" : "w"}${level}`;
      const part = this.signed ? Math.abs(level - 12) / 12 : level / 31;
      return forced ? card.map((value, index) => value + (ink[index] - value) * part) : parts(getComputedStyle(probe).backgroundColor);
    });
    probe.remove();
    this.bar(colors);
    return [...colors, line];
  }

  /** @param {number[][]} colors */
  bar(colors) {
    const canvas = this.element.querySelector("canvas.bar");
    const context = canvas instanceof HTMLCanvasElement ? canvas.getContext("2d") : null;
    if (!context) return;
    context.canvas.width = colors.length;
    colors.forEach((color, index) => {
      context.fillStyle = `rgb(${color.join(" ")})`;
      context.fillRect(index, 0, 1, 1);
    });
  }
}

/**
 * The tiles of an address; those of other matrices are dropped, oldest first.
 * @param {string} address
 */
function remember(address) {
  const tiles = loaded.get(address) ?? [];
  for (const tile of tiles) tile.image = null; // its colors may be those of another theme
  loaded.delete(address);
  loaded.set(address, tiles);
  for (const old of [...loaded.keys()].slice(0, -MATRICES)) loaded.delete(old);
  return tiles;
}

/**
 * The region to request for a view: around a close one, so that small moves need no request.
 * @param {Region} view
 * @param {number} rows
 * @param {number} columns
 * @returns {Region}
 */
function tileOf(view, rows, columns) {
  const [top, height] = span(view.top, view.height, rows);
  const [left, width] = span(view.left, view.width, columns);
  return { top, left, height, width };
}

/**
 * @param {number} start
 * @param {number} length
 * @param {number} size
 */
function span(start, length, size) {
  if (length > LARGEST_SIDE - STEP) return [start, length];
  const first = Math.floor(start / STEP) * STEP;
  return [first, Math.min(LARGEST_SIDE, size - first)];
}

/**
 * @param {Region} one
 * @param {Region} other
 */
function isSame(one, other) {
  return one.top === other.top && one.left === other.left && one.height === other.height && one.width === other.width;
}

/**
 * @param {Region} region
 * @param {ArrayBuffer} bytes
 * @returns {Tile}
 */
function tileFrom(region, bytes) {
  const down = Math.ceil(region.height / LARGEST_SIDE);
  const across = Math.ceil(region.width / LARGEST_SIDE);
  const rows = Math.ceil(region.height / down);
  const columns = Math.ceil(region.width / across);
  if (bytes.byteLength !== 4 * rows * columns) throw new Error("The numbers of this matrix are incomplete; reload the page.");
  const view = new DataView(bytes);
  const values = Float32Array.from({ length: rows * columns }, (_, index) => view.getFloat32(4 * index, true));
  return { ...region, rows, columns, down, across, values, image: null };
}

/**
 * @param {Tile} tile
 * @param {number[][]} colors the last one is that of what is not finite
 * @param {number} high
 * @param {boolean} signed
 */
function paint(tile, colors, high, signed) {
  const canvas = document.createElement("canvas");
  canvas.width = tile.columns;
  canvas.height = tile.rows;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(tile.columns, tile.rows);
  const last = colors.length - 2;
  tile.values.forEach((value, index) => {
    const part = high ? clamp(value / high, signed ? -1 : 0, 1) : 0;
    const level = Number.isFinite(value) ? Math.round((signed ? (part + 1) / 2 : part) * last) : last + 1;
    image.data.set(colors[level], 4 * index);
    image.data[4 * index + 3] = 255;
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

/** @param {string} color as in ``rgb(1, 2, 3)`` */
function parts(color) {
  return (color.match(/[\d.]+/g) ?? ["0", "0", "0"]).slice(0, 3).map(Number);
}

/** @param {number} value */
function text(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const size = Math.abs(value);
  const short = size && (size < 1e-4 || size >= 1e6) ? value.toExponential(3) : String(Number(value.toPrecision(5)));
  return short.replace("-", "−");
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}
