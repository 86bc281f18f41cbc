// The focus after what was done to a row by a button of its menu.

import { markHere, neighbour, place, rowOf, tidy } from "./rows.js";

let acted; // the id of the row whose button was pressed, for the focus to come back to

/** A row was swapped in by a button of its own. */
export function came(row) {
  markHere(row);
  place(row);
  tidy(); // a group that was hidden takes no focus
  if (row.dataset.id === acted) row.querySelector(".open").focus({ preventScroll: true });
  acted = undefined;
}

/** A button of a row asks for something: note where the focus is to go if the row goes. */
export function leaves(element) {
  const row = element.closest?.(".row");
  if (!row || !element.closest(".deeds")) return;
  acted = row.dataset.id;
  const next = neighbour(row);
  const isGone = new MutationObserver(() => {
    if (row.isConnected) return;
    isGone.disconnect();
    if (!rowOf(acted) && document.activeElement === document.body) next?.focus({ preventScroll: true });
    tidy();
  });
  isGone.observe(document.getElementById("list"), { childList: true, subtree: true });
  setTimeout(() => isGone.disconnect(), 10_000);
}
