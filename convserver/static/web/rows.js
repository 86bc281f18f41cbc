// Rows of the list: each in its place, and none torn from under a hand.

export const rowOf = (id) => document.getElementById(`row-${id}`);
const list = () => document.getElementById("list");

export const rows = {
  /** Take the server's rows for these ids; those that it does not send are not shown any more. */
  take(ids, html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    const fresh = new Map([...template.content.querySelectorAll(".row")].map((row) => [row.dataset.id, row]));
    for (const id of ids) if (!fresh.has(id)) this.remove(id);
    for (const [id, row] of fresh) if (ids.includes(id)) this.show(row);
    tidy();
  },

  show(fresh) {
    const shown = rowOf(fresh.dataset.id);
    if (shown) renew(shown, fresh);
    const row = shown ?? fresh;
    if (place(row) && !shown) window.htmx?.process(row);
    markHere(row);
  },

  remove(id) {
    const row = rowOf(id);
    if (!row) return;
    const next = neighbour(row);
    const hadFocus = row.contains(document.activeElement);
    row.remove();
    if (hadFocus) next?.focus();
    tidy();
  },
};

export function neighbour(row) {
  return (row.nextElementSibling ?? row.previousElementSibling)?.querySelector("a");
}

/** Write what is new into the row that stands, so that focus, open menus and loaded families stay. */
function renew(shown, fresh) {
  shown.className = fresh.className;
  shown.dataset.place = fresh.dataset.place;
  for (const name of ["pinned", "parent"]) {
    if (name in fresh.dataset) shown.dataset[name] = fresh.dataset[name];
    else delete shown.dataset[name];
  }
  shown.querySelector(".open").replaceChildren(...fresh.querySelector(".open").childNodes);
  const actions = shown.querySelector(":scope > .actions");
  if (!actions.open && !actions.contains(document.activeElement)) actions.replaceWith(fresh.querySelector(":scope > .actions"));
  renewFamily(shown, fresh);
  window.htmx?.process(shown);
}

function renewFamily(shown, fresh) {
  const [stands, comes] = [shown, fresh].map((row) => row.querySelector(":scope > .family"));
  if (stands && comes) stands.querySelector("summary").replaceWith(comes.querySelector("summary"));
  else if (comes) shown.append(comes);
  else stands?.remove();
}

/** Put a row where it belongs; say whether it has a place. */
export function place(row) {
  const group = groupOf(row);
  if (!group) return false;
  const after = [...group.children].find((other) => other !== row && !isBefore(other, row));
  if (!row.isConnected && after?.matches(".more")) return false; // it comes when the list is read so far
  if (row.parentElement === group && row.nextElementSibling === (after ?? null)) return true;
  const focused = row.contains(document.activeElement) ? document.activeElement : undefined;
  group.insertBefore(row, after ?? null);
  if (group.closest(".group")) group.closest(".group").hidden = false; // what is hidden takes no focus
  focused?.focus({ preventScroll: true });
  return true;
}

function groupOf(row) {
  const { parent, pinned } = row.dataset;
  const isFlat = "flat" in (list()?.dataset ?? {});
  if (parent && !isFlat) return row.closest(".within > .rows") ?? rowOf(parent)?.querySelector(":scope > .family .rows");
  return document.getElementById(pinned === undefined ? "rows" : "pinned");
}

/** Families stand in the order of their creation, all else as the list does. */
function isBefore(other, row) {
  if (!other.matches(".row")) return false;
  if (row.parentElement?.closest(".family") || other.closest(".family")) return other.dataset.createdAt > row.dataset.createdAt;
  return list()?.dataset.order === "title" ? other.dataset.place < row.dataset.place : other.dataset.place > row.dataset.place;
}

export function tidy() {
  const [pinned, rest] = ["pinned", "rows"].map((id) => document.getElementById(id));
  if (!pinned || !rest) return;
  pinned.closest(".group").hidden = !pinned.children.length;
  const nothing = document.querySelector("#list .nothing");
  if (nothing) nothing.hidden = Boolean(pinned.children.length || rest.children.length);
}

export function markHere(row) {
  const link = row.querySelector(".open");
  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}
