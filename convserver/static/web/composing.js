// Keys that an input method takes for itself: no handler of a page hears them. Import this before all else.

/** Safari ends a composition before the key that has ended it: only its code says so then. */
const isTaken = ({ isComposing, keyCode }) => isComposing || keyCode === 229;

addEventListener(
  "keydown",
  (event) => {
    if (!isTaken(event)) return;
    event.stopImmediatePropagation();
    // In a field of one line the browser would send its form.
    if (event.key === "Enter" && event.target.matches?.("input")) event.preventDefault();
  },
  { capture: true },
);
