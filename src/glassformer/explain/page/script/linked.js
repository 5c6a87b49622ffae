"use strict";
// The same token, wherever it stands: everything with its side and position lights up.

const byToken = new Map();
for (const element of document.querySelectorAll("[data-side]")) {
  const first = Number(element.dataset.position);
  const span = Number(element.dataset.span || 1);
  for (let position = first; position < first + span; position++) {
    const token = `${element.dataset.side} ${position}`;
    if (!byToken.has(token)) byToken.set(token, []);
    byToken.get(token).push(element);
  }
}

let lit = [];
let kept = "";

function tokensOf(element) {
  const first = Number(element.dataset.position);
  const count = Number(element.dataset.span || 1);
  return Array.from({ length: count }, (_, step) => `${element.dataset.side} ${first + step}`);
}

function light(tokens) {
  for (const element of lit) element.classList.remove("linked", "linked-row");
  for (const gallery of document.querySelectorAll(".row-marked, .column-marked")) gallery.classList.remove("row-marked", "column-marked");
  lit = [];
  for (const token of new Set(kept ? [...tokens, kept] : tokens)) {
    for (const element of byToken.get(token) || []) mark(element);
  }
}

function mark(element) {
  element.classList.add("linked");
  lit.push(element);
  if (element.tagName !== "TH") return;
  const isRow = element.scope === "row";
  if (isRow && element.closest(".numbers-table")) {
    element.parentElement.classList.add("linked-row");
    lit.push(element.parentElement);
  }
  const gallery = element.closest(".gallery");
  if (!gallery) return;
  const count = Number(isRow ? gallery.dataset.rows : gallery.dataset.columns);
  const place = isRow ? element.parentElement.sectionRowIndex : element.cellIndex - 1;
  gallery.classList.add(isRow ? "row-marked" : "column-marked");
  gallery.style.setProperty(isRow ? "--row" : "--column", place / count);
  gallery.style.setProperty(isRow ? "--row-size" : "--column-size", 1 / count);
}

function pointedAt(target) {
  const named = target.closest("[data-side]");
  if (named) return tokensOf(named);
  const cell = target.closest(".numbers-table tbody td");
  return cell ? headingsOf(cell).filter((heading) => heading && heading.dataset.side).flatMap(tokensOf) : [];
}

function headingsOf(cell) {
  const names = cell.closest("table").tHead.rows;
  return [cell.parentElement.cells[0], names[names.length - 1].cells[cell.cellIndex]];
}

for (const [start, end] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
  document.addEventListener(start, (event) => light(pointedAt(event.target)));
  document.addEventListener(end, () => light([]));
}

for (const button of document.querySelectorAll(".token")) {
  button.addEventListener("click", () => {
    const [token] = tokensOf(button);
    kept = kept === token ? "" : token;
    for (const other of document.querySelectorAll(".token")) {
      other.setAttribute("aria-pressed", String(kept !== "" && tokensOf(other)[0] === kept));
    }
    light([token]);
  });
}
