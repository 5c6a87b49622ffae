// @ts-check
// Forms inside a view: what they say becomes the address, as if a link had been followed.

export function listenToFields() {
  document.addEventListener("submit", (event) => {
    if (!(event.target instanceof HTMLFormElement) || !event.target.matches(".fields")) return;
    event.preventDefault();
    follow(event.target);
  });
  document.addEventListener("change", (event) => {
    const form = event.target instanceof Element ? event.target.closest(".fields") : null;
    if (form instanceof HTMLFormElement && form.hasAttribute("data-eager")) follow(form);
  });
}

/** @param {HTMLFormElement} form */
function follow(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (typeof value === "string" && value !== "") query.append(name, value);
  open(`?${query}`);
}

/** @param {string} address */
function open(address) {
  const link = document.createElement("a");
  link.href = address;
  link.hidden = true;
  document.body.append(link);
  link.click();
  link.remove();
}
