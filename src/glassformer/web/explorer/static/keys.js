// @ts-check
// The keyboard: Esc goes a level up, arrow keys move within a table and along the steps, with Shift a step of the
// target from everywhere; Enter follows a number.

/** @type {Record<string, [number, number]>} */
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function listenToKeys() {
  document.addEventListener("keydown", (event) => {
    const target = event.target instanceof Element ? event.target : document.body;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return up(event, target);
    if (event.key === "Enter" && target.matches("[data-href]")) return follow(event, target);
    if (event.shiftKey) return step(event, target);
    if (!(event.key in MOVES) && event.key !== "Home" && event.key !== "End") return;
    const cell = target.closest(".numbers td");
    if (cell instanceof HTMLTableCellElement) return moveInTable(event, cell);
    if (target.closest("a.patch")) return moveAmongPatches(event, target);
    if (target.closest(".steps")) moveAlong(event, target);
  });
}

/**
 * A first Esc leaves an input or a menu, the next goes up.
 * @param {KeyboardEvent} event
 * @param {Element} target
 */
function up(event, target) {
  if (target instanceof HTMLInputElement || target instanceof HTMLSelectElement) {
    target.blur();
    return;
  }
  const link = document.getElementById("up");
  if (link) {
    event.preventDefault();
    link.click();
  }
}

/**
 * Shift with an arrow is the step before or after, but for where it marks text or moves a bar.
 * @param {KeyboardEvent} event
 * @param {Element} target
 */
function step(event, target) {
  const [, right] = MOVES[event.key] ?? [0, 0];
  if (!right || target.closest("input, select, textarea, canvas")) return;
  event.preventDefault();
  document.getElementById(right < 0 ? "step-before" : "step-after")?.click();
}

/**
 * @param {KeyboardEvent} event
 * @param {Element} target
 */
function follow(event, target) {
  event.preventDefault();
  target.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
}

/**
 * @param {KeyboardEvent} event
 * @param {HTMLTableCellElement} cell
 */
function moveInTable(event, cell) {
  const row = cell.parentElement;
  const body = row?.parentElement;
  if (!(row instanceof HTMLTableRowElement) || !(body instanceof HTMLTableSectionElement)) return;
  const cells = row.querySelectorAll("td > a").length;
  const [down, right] = MOVES[event.key] ?? [0, 0];
  let column = cell.cellIndex + right;
  if (event.key === "Home") column = 1;
  if (event.key === "End") column = cells;
  const next = body.rows[row.sectionRowIndex + down]?.cells[column]?.querySelector("a");
  event.preventDefault();
  if (!next) return;
  cell.querySelector("a")?.setAttribute("tabindex", "-1");
  next.tabIndex = 0;
  next.focus();
}

/**
 * @param {KeyboardEvent} event
 * @param {Element} target
 */
function moveAlong(event, target) {
  const links = [...document.querySelectorAll(".steps a.step")];
  const place = links.indexOf(/** @type {Element} */ (target.closest("a.step")));
  const [, right] = MOVES[event.key] ?? [0, 0];
  const next = event.key === "Home" ? links[0] : event.key === "End" ? links[links.length - 1] : links[place + right];
  if (!(next instanceof HTMLElement) || place < 0) return;
  event.preventDefault();
  next.focus();
}

/**
 * Patches of an image have rows of `data-across`; those of a series have one row.
 * @param {KeyboardEvent} event
 * @param {Element} target
 */
function moveAmongPatches(event, target) {
  const figure = target.closest("svg");
  const patches = /** @type {SVGAElement[]} */ ([...(figure?.querySelectorAll("a.patch") ?? [])]);
  const place = patches.indexOf(/** @type {SVGAElement} */ (target.closest("a.patch")));
  const [down, right] = MOVES[event.key] ?? [0, 0];
  const moved = place + right + down * Number(figure?.getAttribute("data-across") ?? 0);
  const next = event.key === "Home" ? patches[0] : event.key === "End" ? patches[patches.length - 1] : patches[moved];
  event.preventDefault();
  if (!next) return;
  for (const one of patches) one.setAttribute("tabindex", one === next ? "0" : "-1");
  next.focus();
}
