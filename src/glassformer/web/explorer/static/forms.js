// @ts-check
// Forms inside a view, whose fields are keys of the address.

import { shown } from "./address.js";

/**
 * Show an address, as if a link to it had been followed.
 * @param {string} address
 */
export function follow(address) {
  const link = document.createElement("a");
  link.href = address;
  link.hidden = true;
  document.body.append(link);
  link.click();
  link.remove();
}

export function listenToForms() {
  document.addEventListener("submit", (event) => {
    if (!(event.target instanceof HTMLFormElement)) return;
    if (event.target.matches(".fields")) {
      event.preventDefault();
      send(event.target);
    } else if (event.target.matches("[data-follow]")) {
      event.preventDefault();
      if (document.activeElement instanceof HTMLElement) document.activeElement.blur(); // the field changes
    }
  });
  document.addEventListener("change", (event) => {
    const field = event.target;
    if (!(field instanceof HTMLInputElement || field instanceof HTMLSelectElement) || !field.form) return;
    if (field.form.matches(".fields[data-eager]")) send(field.form);
    if (field.form.matches("[data-follow]")) change(field);
  });
}

/**
 * Follow the address that has every field of a form, and nothing else.
 * @param {HTMLFormElement} form
 */
function send(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (typeof value === "string" && value !== "") query.append(name, value);
  follow(`?${query}`);
}

/**
 * Follow the address of the page with the new value of one field; the defaults of the others stay out of it.
 * @param {HTMLInputElement | HTMLSelectElement} field
 */
function change(field) {
  const query = new URLSearchParams(shown());
  if (field.value.trim()) query.set(field.name, field.value);
  else query.delete(field.name);
  if (field.name === "other_run") query.delete("other_checkpoint"); // each run has its own
  follow(`?${query}`);
}
