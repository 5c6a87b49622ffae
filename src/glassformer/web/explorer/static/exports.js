// @ts-check
// Menus of the exports: copies to the clipboard, PNG pictures drawn from the SVG of a panel, and closing by Esc.

import { request } from "./address.js";

const SCALE = 2; // pixels of a PNG for one of the page
const MOST_PIXELS = 16e6;

export function listenToExports() {
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    for (const menu of openMenus()) if (!target || !menu.contains(target)) menu.open = false;
    const button = target?.closest("[data-copy-of], [data-png], #share");
    if (button instanceof HTMLButtonElement) void act(button);
  });
  document.addEventListener("keydown", close, { capture: true }); // before Esc goes a level up
}

/** @returns {HTMLDetailsElement[]} */
function openMenus() {
  return [...document.querySelectorAll("details.export[open]")].filter((one) => one instanceof HTMLDetailsElement);
}

/** @param {KeyboardEvent} event */
function close(event) {
  const menus = event.key === "Escape" ? openMenus() : [];
  if (!menus.length) return;
  event.stopImmediatePropagation();
  for (const menu of menus) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary")?.focus();
    menu.open = false;
  }
}

/** @param {HTMLButtonElement} button */
async function act(button) {
  const label = button.textContent ?? "";
  const { png, copyOf } = button.dataset;
  button.disabled = true;
  try {
    if (png) await draw(png);
    else await navigator.clipboard.writeText(copyOf ? await text(copyOf) : location.href);
    button.textContent = png ? "saved" : "copied";
  } catch (error) {
    button.textContent = error instanceof DOMException && error.name === "NotAllowedError" ? "not allowed" : "failed";
    button.title = error instanceof Error ? error.message : "";
  }
  button.disabled = false;
  button.focus({ preventScroll: true });
  setTimeout(() => (button.textContent = label), 1200);
}

/** @param {string} address */
async function text(address) {
  const answer = await request(address);
  const content = await answer.text();
  if (!answer.ok) throw new Error(content.trim());
  return content;
}

/**
 * The SVG at an address as a picture of pixels, saved under the same name.
 * @param {string} address
 */
async function draw(address) {
  const answer = await request(address);
  const content = await answer.text();
  if (!answer.ok) throw new Error(content.trim());
  const name = /filename="([^"]*)\.svg"/.exec(answer.headers.get("content-disposition") ?? "")?.[1] ?? "picture";
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(content)}`;
  await picture.decode();
  const scale = Math.min(SCALE, Math.sqrt(MOST_PIXELS / (picture.width * picture.height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(scale * picture.width);
  canvas.height = Math.round(scale * picture.height);
  canvas.getContext("2d")?.drawImage(picture, 0, 0, canvas.width, canvas.height);
  /** @type {Blob | null} */
  const file = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!file) throw new Error("The picture is too large for this browser; save the SVG.");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = `${name}.png`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
