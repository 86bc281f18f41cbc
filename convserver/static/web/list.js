// The list, live: the socket says what changed, and the server writes those rows.

import { setServerTime } from "./clock.js";
import "./place.js";
import { LiveSocket } from "./socket.js";
import "./undo.js";
import { setAsking } from "./window_title.js";

const AT_A_TIME = 20;
const REST_MS = 120; // what changes together is fetched together
const RETRY_MS = 3_000;
const ANSWER_MS = 30_000; // of a line that may be dead; the longest wait, too

const changed = new Set();
const gone = new Set(); // since rows were asked for, which may still show them
let timer;
let retryMs = RETRY_MS;
let isFetching = false;

let focus; // its module
let fetching; // one promise, so that what waits for it acts in order

function fetchFocus() {
  fetching ??= import("./row_focus.js").then((module) => (focus = module));
  fetching.catch(() => (fetching = undefined));
  return fetching;
}

function note(id) {
  changed.add(id);
  later(REST_MS);
}

function later(wait) {
  if (!isFetching) timer ??= setTimeout(fetchChanged, wait);
}

/** One request at a time. */
async function fetchChanged() {
  timer = undefined;
  const list = document.getElementById("list");
  if (!list) return changed.clear();
  const ids = [...changed].slice(0, AT_A_TIME);
  ids.forEach((id) => changed.delete(id));
  gone.clear();
  isFetching = true;
  let wait = REST_MS;
  const again = () => {
    ids.forEach((id) => changed.add(id));
    wait = retryMs;
    retryMs = Math.min(wait * (1.5 + Math.random()), ANSWER_MS);
  };
  try {
    const asked = query(ids);
    const answer = await fetch(`${list.dataset.rows}?${asked}`, { signal: AbortSignal.timeout(ANSWER_MS) });
    const html = await answer.text();
    const { rows } = await import("./rows.js");
    if (answer.status >= 500) return again();
    retryMs = RETRY_MS;
    if (answer.ok && !answer.redirected && `${query(ids)}` === `${asked}`) rows.take(ids.filter((id) => !gone.has(id)), html);
  } catch {
    again(); // the network is gone; the socket is, too
  } finally {
    isFetching = false;
    if (changed.size) later(wait);
  }
}

function query(ids) {
  const filters = document.getElementById("filters");
  const wanted = new URLSearchParams(filters ? new FormData(filters) : "");
  ids.forEach((id) => wanted.append("id", id));
  return wanted;
}

let { cursor, now } = document.getElementById("list")?.dataset ?? {};
if (now) setServerTime(now);

function heard(frame) {
  if (frame.code === "cursor_ahead") return location.reload();
  if (frame.cursor) cursor = frame.cursor;
  if (frame.now) setServerTime(frame.now);
  if (frame.type === "draft") document.dispatchEvent(new CustomEvent("draft", { detail: frame }));
  if (frame.type !== "conversation") return;
  const { id, parent, deleted, loop } = frame.conversation;
  if (localStorage.notify) import("./device.js").then((it) => it.notify(frame.conversation)).catch(console.warn);
  setAsking(id, !deleted && loop.execution_status === "waiting_for_confirmation");
  if (!deleted) stands(id);
  else {
    gone.add(id);
    import("./rows.js").then(({ rows }) => rows.remove(id), console.warn);
  }
  if (parent) note(parent); // it says how many it has started
}

function stands(id) {
  note(id);
  document.dispatchEvent(new CustomEvent("stands", { detail: id }));
}

/** Say so while the list is not live. */
function stand({ name, code }) {
  if (name === "connecting") return;
  const why = code === 4401 ? "You have been logged out. Reload the page to log in." : "Not connected. This list may be out of date.";
  document.getElementById("cut-off").textContent = name === "open" ? "" : why;
  if (name !== "open" || !timer) return;
  clearTimeout(timer);
  fetchChanged();
}

// Keys move in the list from the first one that is pressed there.
const fetchKeys = () => import("./roving.js").catch(() => {});
document.addEventListener("keydown", fetchKeys, { once: true, capture: true });
document.getElementById("sidebar")?.addEventListener("focusin", fetchKeys, { once: true });
for (const sign of ["keydown", "pointermove", "pointerdown", "wheel"]) document.addEventListener(sign, () => fetchFocus().catch(() => {}), { once: true, capture: true });

if (document.getElementById("list")) {
  new LiveSocket({
    address: () => (cursor ? `/ws/conversations?since=${encodeURIComponent(cursor)}` : "/ws/conversations"),
    // By polls: a page has a stream already, of its conversation, and a browser few connections.
    overHttp: ({ HttpWire }) => new HttpWire({ address: () => `/api/native/stream?${cursor ? `since=${encodeURIComponent(cursor)}` : ""}`, isPolling: true }),
    onFrame: heard,
    onState: stand,
  });
}

// What was typed before the scripts ran, once htmx listens.
document.addEventListener("DOMContentLoaded", () => {
  const find = document.getElementById("find");
  if (find && find.value !== find.defaultValue) find.dispatchEvent(new Event("input", { bubbles: true }));
});

// What was typed to find a title is also looked for in messages.
document.getElementById("everywhere")?.addEventListener("click", (click) => {
  const words = document.getElementById("find").value.trim();
  if (words) click.currentTarget.search = new URLSearchParams({ q: words });
});

const select = (row) => import("./selection.js").then(({ pick }) => pick(row));
document.addEventListener("click", ({ target }) => target.closest?.("[data-selects]") && select());
document.addEventListener("key", ({ detail }) => detail === "x" && select(document.activeElement.closest(".row")));

document.addEventListener("row", ({ detail }) => detail?.id && note(detail.id));
document.addEventListener("htmx:load", ({ detail: { elt } }) => elt.matches?.(".row") && withFocus(({ came }) => came(elt)));
document.addEventListener("htmx:beforeRequest", ({ detail: { elt } }) => {
  const row = elt.closest?.(".actions")?.closest(".row");
  const next = row?.nextElementSibling ?? row?.previousElementSibling;
  if (row) withFocus(({ leaves }) => leaves(row, next));
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, pathInfo } = event.detail;
  if (!xhr.responseURL || new URL(xhr.responseURL).pathname === new URL(pathInfo.requestPath, location.href).pathname) return;
  event.detail.shouldSwap = false;
  location.reload(); // whoever is not logged in any more is asked to
});

/** At once if the module is here. */
function withFocus(act) {
  if (focus) act(focus);
  else fetchFocus().then(act, () => {});
}
