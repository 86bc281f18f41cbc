// Notices that can be taken back: they stay a minute, and as long as somebody is at them.

const STAYS_MS = 60_000;

function stay(notice) {
  setTimeout(() => {
    if (document.hidden || notice.matches(":hover, :focus-within")) stay(notice);
    else notice.remove();
  }, STAYS_MS);
}

const toasts = document.getElementById("toasts");
if (toasts) {
  new MutationObserver((records) => {
    for (const { addedNodes } of records) for (const node of addedNodes) if (node.matches?.("[data-undo]")) stay(node);
  }).observe(toasts, { childList: true });
}

// However long the list is that the focus is in, one key reaches the newest.
document.addEventListener("key", ({ detail }) => {
  if (detail === "z") [...document.querySelectorAll("[data-undo] button[type=submit]")].at(-1)?.click();
});

document.addEventListener("click", ({ target }) => target.closest?.("[data-dismiss]")?.closest(".toast").remove());
