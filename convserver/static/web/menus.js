// The menus of conversations and events: one is open at a time, and Escape closes it.

document.addEventListener("toggle", ({ target }) => {
  if (!target.matches?.(".actions[open]")) return;
  for (const other of document.querySelectorAll(".actions[open]")) if (other !== target) other.open = false;
}, true);
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest?.(":is(.actions, .event-menu)[open]");
  if (!menu) return;
  event.preventDefault();
  menu.open = false;
  menu.querySelector("summary").focus();
});
document.addEventListener("click", ({ target }) => {
  for (const menu of document.querySelectorAll(".event-menu[open]")) if (!menu.contains(target)) menu.open = false;
});
