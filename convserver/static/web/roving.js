// The list by keys: one stop of the Tab key, arrows from row to row, M for a row's menu.

const list = document.querySelector("#sidebar .scroll");
const STOPS = ".row .open, .row .actions > summary, .row .family > summary, .rows > .more > a";
let current; // the row that Tab leads to

const links = () => [...list.querySelectorAll(".row .open")].filter((link) => link.checkVisibility?.() ?? link.offsetParent);

/** Let Tab stop at one row: the one that was left, else that of this page, else the first. */
function settle() {
  if (!current?.isConnected) current = list.querySelector(".open[aria-current]") ?? list.querySelector(".row .open");
  for (const stop of list.querySelectorAll(STOPS)) {
    const index = stop === current ? "0" : "-1";
    if (stop.getAttribute("tabindex") !== index) stop.setAttribute("tabindex", index);
  }
}

function moveTo(link) {
  if (!link) return;
  current = link;
  settle();
  link.focus();
}

function move(event) {
  const row = event.target.closest?.(STOPS) && event.target.closest(".row");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const link = row.querySelector(".open");
  const all = links();
  const next = { ArrowDown: all[all.indexOf(link) + 1], ArrowUp: all[all.indexOf(link) - 1], Home: all[0], End: all.at(-1) };
  if (event.key in next) moveTo(next[event.key]);
  else if (event.key === "ArrowRight" || event.key === "ArrowLeft") unfold(row, event.key === "ArrowRight");
  else if (event.key === "m") openMenu(row);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function unfold(row, isOpen) {
  const family = row.querySelector(":scope > .family");
  if (family && family.open !== isOpen) family.open = isOpen;
  else if (!isOpen) moveTo(row.parentElement.closest(".row")?.querySelector(".open"));
}

function openMenu(row) {
  const menu = row.querySelector(":scope > .actions");
  menu.open = true;
  menu.querySelector("input:not([type=hidden]), button").focus();
}

if (list) {
  list.addEventListener("keydown", move);
  list.addEventListener("focusin", ({ target }) => {
    const link = target.closest(".row")?.querySelector(".open");
    if (!link || link === current) return;
    current = link;
    settle();
  });
  document.getElementById("find")?.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    moveTo(links()[0]);
  });
  new MutationObserver(settle).observe(list, { childList: true, subtree: true });
  settle();
}
