// The focus after what was done to a row by a button of its menu.

import "./again.js";
import "./failures.js";
import { markHere, place, rowOf, tidy } from "./rows.js";

let acted; // the id of the row whose button was pressed, for the focus to come back to

/** A row was swapped in by a button of its own. */
export function came(row) {
  markHere(row);
  place(row);
  tidy(); // a group that was hidden takes no focus
  if (row.dataset.id === acted) row.querySelector(".open").focus({ preventScroll: true });
  acted = undefined;
}

/** A button of a row asks for something: note that the focus is to go to the row `next` to it if the row goes. */
export function leaves(row, next) {
  acted = row.dataset.id;
  const isGone = new MutationObserver(look);
  isGone.observe(document.getElementById("list"), { childList: true, subtree: true });
  setTimeout(() => isGone.disconnect(), 10_000);
  look(); // it may have gone while this script was fetched

  function look() {
    if (row.isConnected) return;
    isGone.disconnect();
    if (!rowOf(row.dataset.id) && document.activeElement === document.body) next?.querySelector("a")?.focus({ preventScroll: true });
    tidy();
  }
}
