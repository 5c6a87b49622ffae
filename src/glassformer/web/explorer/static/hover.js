// @ts-check
// Linked highlighting, without a request: a token lights up wherever it stands, with the lines that leave it.

export function listenToHover() {
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, (event) => light(event.target));
  for (const kind of ["pointerout", "focusout"]) document.addEventListener(kind, clear);
}

/** @param {EventTarget | null} target */
function light(target) {
  if (!(target instanceof Element)) return;
  clear();
  const token = target.closest("[data-side]");
  if (token instanceof HTMLElement) lightToken(token);
  const cell = target.closest(".numbers td");
  if (cell instanceof HTMLTableCellElement) lightCell(cell);
  if (target instanceof SVGPathElement && target.dataset.query !== undefined) lightLine(target);
}

/** @param {HTMLElement} token */
function lightToken(token) {
  const { side, position, column, index } = token.dataset;
  for (const one of document.querySelectorAll(`[data-side="${CSS.escape(side ?? "")}"][data-position="${position}"]`)) {
    one.classList.add("linked");
  }
  const figure = token.closest(".links");
  if (!figure || column === undefined) return;
  figure.classList.add("focused");
  const name = column === "query" ? "query" : "index";
  for (const line of figure.querySelectorAll(`path[data-${name}="${index}"]`)) line.classList.add("lit");
}

/** @param {HTMLTableCellElement} cell */
function lightCell(cell) {
  const row = cell.parentElement;
  const table = cell.closest("table");
  row?.querySelector("th")?.classList.add("linked");
  const head = table?.tHead?.rows;
  head?.[head.length - 1]?.cells[cell.cellIndex]?.classList.add("linked");
}

/** @param {SVGPathElement} line */
function lightLine(line) {
  const figure = line.closest(".links");
  if (!figure) return;
  figure.classList.add("focused");
  line.classList.add("lit");
  for (const [column, index] of [["query", line.dataset.query], ["key", line.dataset.index]]) {
    figure.querySelector(`.token[data-column="${column}"][data-index="${index}"]`)?.classList.add("linked");
  }
}

function clear() {
  for (const one of document.querySelectorAll(".linked, .lit, .links.focused")) {
    one.classList.remove("linked", "lit", "focused");
  }
}
