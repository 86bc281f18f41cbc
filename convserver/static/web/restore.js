// Bringing a deleted conversation back, from the page that still shows it.

import { csrf } from "./csrf.js";

export async function restore(id) {
  const address = `/api/native/conversations/${encodeURIComponent(id)}/restore`;
  const answer = await fetch(address, { method: "POST", headers: { "X-CSRFToken": csrf() } }).catch(() => undefined);
  if (answer?.ok) return location.reload();
  const words = answer ? "This conversation can't be restored." : "Not restored: the server can't be reached.";
  document.dispatchEvent(new CustomEvent("toast", { detail: words }));
}
