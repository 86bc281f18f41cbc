// Times of rows: how long ago, kept true; the whole moment, in the reader's own zone.

const RENEW_MS = 30_000;
const MIN = 60, HOUR = 3600, DAY = 86400;
const whole = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "short" });
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

function ago(moment) {
  const seconds = (Date.now() - moment) / 1000;
  if (seconds < MIN) return "now";
  if (seconds < HOUR) return `${Math.floor(seconds / MIN)} min`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h`;
  return seconds < 30 * DAY ? `${Math.floor(seconds / DAY)} d` : date.format(moment);
}

function renew() {
  for (const time of document.querySelectorAll("#list time")) {
    const moment = new Date(time.dateTime);
    const words = ago(moment);
    if (time.textContent !== words) time.textContent = words;
    time.title = whole.format(moment);
  }
}

renew();
setInterval(renew, RENEW_MS);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && renew());
document.addEventListener("htmx:load", renew);
