// Tables of numbers: arrow keys move, and the cell under pointer or focus is read out in full.

const decoded = new Map();

function numbersOf(key) {
  if (!decoded.has(key)) {
    const script = document.getElementById(key);
    const bytes = Uint8Array.from(atob(script.textContent), (sign) => sign.charCodeAt(0));
    decoded.set(key, littleEndian(new DataView(bytes.buffer), script.dataset.kind));
  }
  return decoded.get(key);
}

function littleEndian(view, kind) {
  const size = { float16: 2, float32: 4, float64: 8 }[kind];
  const read = { float16: (at) => half(view.getUint16(at, true)), float32: (at) => view.getFloat32(at, true), float64: (at) => view.getFloat64(at, true) }[kind];
  return Float64Array.from({ length: view.byteLength / size }, (_, index) => read(index * size));
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function sheetOf(element) {
  const figure = element.closest("figure.sheet");
  const table = figure.querySelector("table");
  const names = table.tHead.rows[table.tHead.rows.length - 1];
  const columns = [...names.cells].slice(1).filter((cell) => !cell.classList.contains("sum"));
  const numbers = numbersOf(figure.dataset.numbers);
  const start = Number(figure.dataset.start);
  return { figure, table, columns, rows: [...table.tBodies[0].rows], at: (row, column) => numbers[start + row * columns.length + column] };
}

// As decimals.py writes them: at a tie to the even digit, where toFixed rounds up; zero has no minus.
function aligned(value, digits) {
  const halves = value * 2 ** (digits + 1);
  const lower = Math.floor(value * 10 ** digits);
  const tie = Number.isInteger(halves) && halves % 2 !== 0;
  const text = (tie ? (lower + Math.abs(lower % 2)) / 10 ** digits : value).toFixed(digits);
  return text.replace("-", Number(text) === 0 ? "" : "−");
}

function weight(value) {
  return value === 0 ? "0" : aligned(value, 2);
}

function plain(value) {
  return String(value).replace("-", "−").replace("Infinity", "∞");
}

function readOut(cell) {
  const sheet = sheetOf(cell);
  const line = sheet.figure.querySelector(".readout");
  const [row, column] = headingsOf(cell);
  if (cell.classList.contains("sum")) {
    line.textContent = `${row.textContent}: the row sums to ${cell.textContent}`;
    return;
  }
  const value = sheet.at(cell.parentElement.sectionRowIndex, cell.cellIndex - 1);
  line.textContent = `${row.textContent} → ${column.textContent}: ${plain(Number(value.toPrecision(9)))}`;
}

function moved(cell, event) {
  const row = cell.parentElement;
  const rows = row.parentElement.rows;
  const last = row.cells.length - 1;
  const whole = event.ctrlKey || event.metaKey;
  const to = {
    ArrowRight: [row.sectionRowIndex, cell.cellIndex + 1], ArrowLeft: [row.sectionRowIndex, cell.cellIndex - 1],
    ArrowDown: [row.sectionRowIndex + 1, cell.cellIndex], ArrowUp: [row.sectionRowIndex - 1, cell.cellIndex],
    Home: [whole ? 0 : row.sectionRowIndex, 1], End: [whole ? rows.length - 1 : row.sectionRowIndex, last],
  }[event.key];
  return to && to[0] >= 0 && to[0] < rows.length && to[1] >= 1 && to[1] <= last ? rows[to[0]].cells[to[1]] : null;
}

function enter(cell) {
  for (const other of cell.closest("tbody").querySelectorAll("td[tabindex]")) other.removeAttribute("tabindex");
  cell.tabIndex = 0;
}

for (const table of document.querySelectorAll(".numbers-table")) {
  enter(table.tBodies[0].rows[0].cells[1]);
  table.closest("figure").querySelector(".readout").hidden = false;
  table.addEventListener("keydown", (event) => {
    const cell = event.target.closest("tbody td");
    const next = cell && moved(cell, event);
    if (!next) return;
    event.preventDefault();
    enter(next);
    next.focus();
  });
  for (const name of ["focusin", "pointerover", "click"]) {
    table.addEventListener(name, (event) => {
      const cell = event.target.closest("tbody td");
      if (!cell) return;
      readOut(cell);
      if (name === "click") { enter(cell); cell.focus(); }
    });
  }
}
