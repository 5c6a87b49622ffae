// @ts-check
// The model is still being loaded: ask for the same address again, which waits for it.

const answer = await fetch(location.href, { headers: { "x-fragment": "1" } }).catch(() => null);
if (answer && (answer.ok || answer.status === 422)) {
  location.reload();
} else {
  const status = document.querySelector("[role=status]");
  if (status) status.textContent = answer ? await answer.text() : "The server has ended; start glassformer explore again.";
}

export {};
