// One key each, outside of fields: what a page does with the others it hears as `key`.

const WRITES = "input, textarea, select, [contenteditable]";

let acted; // the key that was pressed last, if it has led somewhere: held down, it does not write there
let isFresh = true; // no key was pressed here: one that repeats has led here

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.repeat) return (isFresh || event.key === acted) && event.preventDefault();
  isFresh = false;
  acted = undefined;
  if (event.key === "Escape" && event.target.matches?.(WRITES)) return event.target.blur();
  if (event.target.closest?.(WRITES) || document.querySelector("dialog:modal")) return;
  const go = { n: "new", "/": "find", f: "search", c: "write" }[event.key];
  if (go) {
    event.preventDefault();
    acted = event.key;
    if (go === "new") location.href = document.body.dataset.new;
    if (go === "search") location.href = document.body.dataset.search;
    if (go === "find") document.querySelector('#sidebar input[type="search"]')?.focus();
    if (go === "write") document.querySelector("#composer textarea")?.focus();
    return;
  }
  document.dispatchEvent(new CustomEvent("key", { detail: event.key }));
});
