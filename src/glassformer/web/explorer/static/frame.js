// @ts-check
// The page in a frame of a notebook, in the place of address.js: the kernel answers its requests, and no port is open.

let address = document.documentElement.dataset.address ?? "";
const name = crypto.getRandomValues(new Uint32Array(2)).join("-"); // of this frame: a widget may be shown twice
let count = 0;

/** @type {Map<string, (answer: Response) => void>} */
const waiting = new Map();

export function shown() {
  return address;
}

/**
 * @param {string} next
 * @param {"push" | "replace"} _history a frame has none of its own
 */
export function record(next, _history) {
  address = next;
}

/**
 * @param {string} to
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export function request(to, options = {}) {
  const id = `${name}-${(count += 1)}`;
  send({ id, method: options.method ?? "GET", address: to, headers: options.headers ?? {} });
  return new Promise((resolve, reject) => {
    waiting.set(id, resolve);
    options.signal?.addEventListener("abort", () => {
      if (waiting.delete(id)) send({ id, cancel: true });
      reject(new DOMException("another view was asked for", "AbortError"));
    });
  });
}

/** @param {object} message */
function send(message) {
  window.parent.postMessage({ glassformer: message }, "*");
}

/** @param {MessageEvent} event */
function receive(event) {
  const message = event.data?.glassformer;
  const resolve = event.source === window.parent && message ? waiting.get(message.id) : undefined;
  if (!resolve) return;
  waiting.delete(message.id);
  const body = [204, 304].includes(message.status) ? null : event.data.body; // statuses that have none
  resolve(new Response(body, { status: message.status, headers: message.headers }));
}

/**
 * A link to a file: the frame has no address from which a browser could load it.
 * @param {MouseEvent} event
 */
async function save(event) {
  const link = event.target instanceof Element ? event.target.closest("a[href^='export/']") : null;
  if (!(link instanceof HTMLAnchorElement)) return;
  event.preventDefault();
  const answer = await request(link.getAttribute("href") ?? "");
  if (!answer.ok) return;
  const file = document.createElement("a");
  file.href = URL.createObjectURL(await answer.blob());
  file.download = /filename="([^"]*)"/.exec(answer.headers.get("content-disposition") ?? "")?.[1] ?? "glassformer";
  file.click();
  setTimeout(() => URL.revokeObjectURL(file.href), 60_000);
}

window.addEventListener("message", receive);
document.addEventListener("click", (event) => void save(event));
document.getElementById("share")?.remove(); // its address leads nowhere outside the notebook
