// Attention as pictures: a small canvas a head; the chosen head's numbers in the table below.

const shades = document.body.dataset.palette.split(" ");
const shadeBytes = shades.map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));

function shadeOf(value) {
  return Math.round(Math.min(Math.max(value, 0), 1) * (shades.length - 1));
}

function draw(button, rows, columns) {
  const canvas = button.querySelector("canvas");
  const picture = document.createElement("span");
  picture.className = "picture";
  canvas.replaceWith(picture);
  picture.append(canvas);
  const pixels = canvas.getContext("2d").createImageData(columns, rows);
  const numbers = numbersOf(button.dataset.numbers);
  const start = Number(button.dataset.start);
  for (let place = 0; place < rows * columns; place++) {
    const value = numbers[start + place];
    pixels.data.set(Number.isFinite(value) ? [...shadeBytes[shadeOf(value)], 255] : [0, 0, 0, 0], 4 * place);
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}

function choose(gallery, button) {
  for (const other of gallery.querySelectorAll(".head")) {
    other.setAttribute("aria-checked", String(other === button));
    other.tabIndex = other === button ? 0 : -1;
  }
  const stage = gallery.querySelector(".stage");
  stage.dataset.numbers = button.dataset.numbers;
  stage.dataset.start = button.dataset.start;
  stage.querySelector(".title").textContent = button.dataset.title;
  stage.querySelector(".summary").textContent = button.dataset.summary;
  stage.querySelector(".readout").textContent = "";
  stage.querySelector("table").setAttribute("aria-label", button.dataset.title);
  const sheet = sheetOf(stage.querySelector("table"));
  sheet.rows.forEach((row, line) => fill(sheet, row, line));
}

function fill(sheet, row, line) {
  let total = 0;
  for (let column = 0; column < sheet.columns.length; column++) {
    const value = sheet.at(line, column);
    const cell = row.cells[column + 1];
    cell.textContent = weight(value);
    cell.className = Number.isFinite(value) ? `w${shadeOf(value)}` : "x";
    total += value;
  }
  const sum = row.querySelector(".sum");
  if (sum) sum.textContent = aligned(total, 2);
}

function stepped(heads, button, event) {
  const across = heads.filter((head) => head.offsetTop === heads[0].offsetTop).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
  if (event.key === "Home") return heads[0];
  if (event.key === "End") return heads[heads.length - 1];
  return step ? heads[heads.indexOf(button) + step] : undefined;
}

function pointedCell(button, event, gallery) {
  const frame = button.querySelector("canvas").getBoundingClientRect();
  const row = Math.floor(((event.clientY - frame.top) / frame.height) * gallery.dataset.rows);
  const column = Math.floor(((event.clientX - frame.left) / frame.width) * gallery.dataset.columns);
  const rows = gallery.querySelector("tbody").rows;
  const names = gallery.querySelector("thead tr:last-child").cells;
  return rows[row] && names[column + 1] ? [rows[row].cells[0], names[column + 1]] : [];
}

for (const gallery of document.querySelectorAll(".gallery")) {
  const group = gallery.querySelector(".heads");
  const heads = () => [...group.querySelectorAll(".head")];
  for (const button of heads()) {
    draw(button, Number(gallery.dataset.rows), Number(gallery.dataset.columns));
    button.addEventListener("click", () => choose(gallery, button));
    button.addEventListener("pointermove", (event) => light(pointedCell(button, event, gallery).filter((one) => one.dataset.side).flatMap(tokensOf)));
  }
  group.addEventListener("keydown", (event) => {
    const next = stepped(heads(), event.target.closest(".head"), event);
    if (!next) return;
    event.preventDefault();
    choose(gallery, next);
    next.focus();
  });
  const order = gallery.querySelector(".order");
  if (!order) continue;
  order.disabled = false;
  order.addEventListener("change", () => {
    const sorted = heads().sort((one, other) => one.dataset[order.value] - other.dataset[order.value] || one.dataset.layer - other.dataset.layer);
    group.append(...sorted);
  });
}
