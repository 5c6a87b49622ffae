// @ts-check
// The lines of a drawn attention: a click leads to the weight. The drawing has one address, with places for the numbers
// of a line, since an address holds whole sentences.

import { follow } from "./forms.js";

const PLACES = ["9999990", "9999991", "9999992"]; // head, row and column, as in ``head_weights.py``

export function listenToLines() {
  document.addEventListener("click", (event) => {
    const line = event.target instanceof SVGPathElement ? event.target : null;
    const pattern = line?.closest("svg")?.dataset.cells;
    if (!line?.dataset.place || !pattern) return;
    const numbers = line.dataset.place.split("-");
    follow(PLACES.reduce((address, place, at) => address.replace(`=${place}`, `=${numbers[at]}`), pattern));
  });
}
