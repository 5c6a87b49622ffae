// @ts-check
// What a reader must see after a click: the new view, where the page is one column, and the step in a long timeline.

/**
 * The place of a view, as its breadcrumbs name it.
 * @param {Document} page
 */
export function placeOf(page) {
  return page.querySelector(".crumbs")?.textContent ?? "";
}

/**
 * Scroll to the beginning of the view, or to the formula of a number, if it is another place than ``before`` and out of
 * sight. Where each part of the page scrolls by itself, it is in sight.
 * @param {string} before
 */
export function arrive(before) {
  if (placeOf(document) === before) return;
  const goal = document.querySelector(document.body.dataset.level === "cell" ? ".cell" : ".stage");
  const top = goal?.getBoundingClientRect().top ?? 0;
  if (top < 0 || top > window.innerHeight / 2) goal?.scrollIntoView();
}

/** Scroll the timeline, and nothing else, to the step that is explained. */
export function showStep() {
  const steps = document.querySelector(".steps");
  const step = steps?.querySelector("[aria-current]");
  if (!steps || !step) return;
  const [outer, inner] = [steps.getBoundingClientRect(), step.getBoundingClientRect()];
  if (inner.left < outer.left || inner.right > outer.right) {
    steps.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
  }
}
