// @ts-check
// Forms in the stage whose fields are keys of the address: a change leads to the view with the new value.

export function listenToForms() {
  document.addEventListener("change", (event) => {
    const field = event.target;
    if (!(field instanceof HTMLInputElement || field instanceof HTMLSelectElement) || !field.closest("[data-follow]")) return;
    const query = new URLSearchParams(location.search);
    if (field.value.trim()) query.set(field.name, field.value);
    else query.delete(field.name);
    if (field.name === "other_run") query.delete("other_checkpoint"); // each run has its own
    const link = document.createElement("a");
    link.href = `?${query}`;
    document.body.append(link);
    link.click();
    link.remove();
  });
  document.addEventListener("submit", (event) => {
    if (!(event.target instanceof Element) || !event.target.closest("[data-follow]")) return;
    event.preventDefault();
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  });
}
