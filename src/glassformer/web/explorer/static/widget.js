// @ts-check
// The widget of a notebook: a frame with the page, whose requests go to the kernel and whose answers come from it.

/**
 * @typedef {{ get(name: string): string, send(message: object): void,
 *   on(event: string, call: (message: { id: string }, buffers: DataView[]) => void): void,
 *   off(event: string, call: (message: { id: string }, buffers: DataView[]) => void): void }} WidgetModel
 */

/** @param {{ model: WidgetModel, el: HTMLElement }} view */
function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-forms allow-downloads");
  frame.allow = "clipboard-write"; // of the menus of exports
  frame.title = "glassformer";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 1px solid #8888`;
  frame.srcdoc = model.get("document");

  /** @param {MessageEvent} event */
  const ask = (event) => {
    if (event.source === frame.contentWindow && event.data?.glassformer) model.send(event.data.glassformer);
  };
  /**
   * @param {{ id: string }} message
   * @param {DataView[]} buffers
   */
  const answer = (message, [body]) => {
    const bytes = body ? new Uint8Array(body.buffer, body.byteOffset, body.byteLength).slice().buffer : null;
    frame.contentWindow?.postMessage({ glassformer: message, body: bytes }, "*");
  };
  window.addEventListener("message", ask);
  model.on("msg:custom", answer);
  el.append(frame);
  return () => {
    window.removeEventListener("message", ask);
    model.off("msg:custom", answer);
  };
}

export default { render };
