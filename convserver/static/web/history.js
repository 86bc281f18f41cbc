// A log that the server has no more, since its database was replaced: the page is loaded anew, and says why.

const KEY = "history replaced";

/** Drop all that is shown of a conversation, and show what the server has of it now. */
export function loadAnew(id) {
  try {
    sessionStorage.setItem(KEY, id);
  } catch {
    // Where storage is denied nothing is said.
  }
  location.reload();
}

/** Say it once, after the page was loaded anew. */
export function sayReplaced(id) {
  if (replaced() !== id) return;
  sessionStorage.removeItem(KEY);
  const words = "The history of this conversation was replaced on the server. This page shows what is there now.";
  document.dispatchEvent(new CustomEvent("toast", { detail: words }));
}

function replaced() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return undefined;
  }
}
