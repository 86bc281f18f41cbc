// Times in the reader's own zone: the server writes UTC, and each is rewritten before it is drawn, whatever inserts it.
// No module, since those run when the page has been drawn.

{
  const MIN = 60, HOUR = 3600, DAY = 86400;
  const day = { day: "numeric", month: "short", year: "numeric" };
  const clock = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const [date, anyYear, thisYear, whole] = [
    day,
    { ...day, ...clock },
    { ...day, ...clock, year: undefined },
    { ...day, ...clock, month: "long", timeZoneName: "short" },
  ].map((shown) => new Intl.DateTimeFormat("en-GB", shown));

  function ago(moment) {
    const seconds = (Date.now() - moment) / 1000;
    if (seconds < MIN) return "now";
    if (seconds < HOUR) return `${Math.floor(seconds / MIN)} min`;
    if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h`;
    return seconds < 30 * DAY ? `${Math.floor(seconds / DAY)} d` : date.format(moment);
  }

  function words(time, moment) {
    if (time.matches("#list time")) return ago(moment);
    if (time.className === "day") return date.format(moment);
    return (moment.getFullYear() === new Date().getFullYear() ? thisYear : anyYear).format(moment);
  }

  function rewrite(time) {
    const moment = new Date(time.dateTime);
    if (isNaN(moment)) return;
    const written = words(time, moment);
    if (time.textContent !== written) time.textContent = written;
    time.title = whole.format(moment);
  }

  /** Rewrite what has come into the page, also a time whose text the parser had not read before. */
  function look({ target, addedNodes }) {
    for (const node of [target.parentNode, target, ...addedNodes]) if (node?.localName === "time") rewrite(node);
    for (const node of addedNodes) node.querySelectorAll?.("time").forEach(rewrite);
  }

  const renew = () => document.querySelectorAll("#list time").forEach(rewrite);

  new MutationObserver((changes) => changes.forEach(look)).observe(document, { childList: true, characterData: true, subtree: true });
  setInterval(renew, 30_000);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && renew());
}
