// The window's title and icon say how many conversations need approval, else how many of the list are unread.

const title = document.querySelector("title");
const icon = document.querySelector('link[rel="icon"]');
const list = document.querySelector("#sidebar .scroll");
const asking = new Set(JSON.parse(document.body.dataset.asking ?? "[]")); // ids
const plainIcon = icon?.href;

let plain = document.title; // without what is put before it here
let written = plain;
let isDue = false;

/** Take in how a conversation stands now. */
export function setAsking(id, asks) {
  if (asks === asking.has(id)) return;
  if (asks) asking.add(id);
  else asking.delete(id);
  write();
}

function prefix() {
  if (asking.size) return `(${asking.size}) Needs your approval · `;
  const unread = list?.querySelectorAll(".row.unread").length;
  return unread ? `(${unread}) ` : "";
}

function write() {
  if (document.title !== written) plain = document.title;
  written = prefix() + plain;
  if (document.title !== written) document.title = written;
  written = document.title; // as the browser writes it
  const address = asking.size ? new URL(icon.dataset.asking, location.href).href : plainIcon;
  if (icon.href !== address) icon.href = address;
}

function soon() {
  if (isDue) return;
  isDue = true;
  queueMicrotask(() => {
    isDue = false;
    write();
  });
}

if (title && icon) {
  const changes = new MutationObserver(soon);
  if (list) changes.observe(list, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
  changes.observe(title, { childList: true });
  write();
}
