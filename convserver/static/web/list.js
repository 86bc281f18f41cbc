// The list, live: the socket says what changed, the server writes those rows, and they are put in their place.

import { rows } from "./rows.js";
import { LiveSocket } from "./socket.js";
import "./times.js";
import "./undo.js";
import "./unread.js";

const AT_A_TIME = 20;
const REST_MS = 120; // what changes together is fetched together
const RETRY_MS = 3_000;
const ANSWER_MS = 30_000; // a line may be dead without a word

const changed = new Set();
const gone = new Set(); // since rows were asked for, which may still show them
let timer;
let isFetching = false;

function note(id) {
  changed.add(id);
  later(REST_MS);
}

function later(wait) {
  if (!isFetching) timer ??= setTimeout(fetchChanged, wait);
}

/** One request at a time, for a bounded number of rows. */
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
    wait = RETRY_MS;
  };
  try {
    const asked = query(ids);
    const answer = await fetch(`${list.dataset.rows}?${asked}`, { signal: AbortSignal.timeout(ANSWER_MS) });
    const html = await answer.text();
    if (answer.status >= 500) again();
    else if (answer.ok && !answer.redirected && `${query(ids)}` === `${asked}`) rows.take(ids.filter((id) => !gone.has(id)), html);
  } catch {
    again(); // the network is gone; the socket is, too
  }
  isFetching = false;
  if (changed.size) later(wait);
}

function query(ids) {
  const filters = document.getElementById("filters");
  const wanted = new URLSearchParams(filters ? new FormData(filters) : "");
  ids.forEach((id) => wanted.append("id", id));
  return wanted;
}

let now = document.getElementById("list")?.dataset.now;

function heard(frame) {
  if (frame.now) now = frame.now;
  if (frame.type === "draft") document.dispatchEvent(new CustomEvent("draft", { detail: frame }));
  if (frame.type !== "conversation") return;
  const { id, parent, deleted } = frame.conversation;
  if (!deleted) stands(id);
  else {
    rows.remove(id);
    gone.add(id);
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
  const why = code === 4401 ? "You are not logged in any more: load the page again." : "Not connected: this list may be out of date.";
  document.getElementById("cut-off").textContent = name === "open" ? "" : why;
}

if (document.getElementById("list")) {
  new LiveSocket({
    address: () => (now ? `/ws/conversations?since=${encodeURIComponent(now)}` : "/ws/conversations"),
    onFrame: heard,
    onState: stand,
  });
}

// What was typed before the scripts ran is looked for as well, once htmx listens.
document.addEventListener("DOMContentLoaded", () => {
  const find = document.getElementById("find");
  if (find && find.value !== find.defaultValue) find.dispatchEvent(new Event("input", { bubbles: true }));
});

// What was typed to find a title may be looked for in all messages as well.
document.getElementById("everywhere")?.addEventListener("click", (click) => {
  const words = document.getElementById("find").value.trim();
  if (words) click.currentTarget.search = new URLSearchParams({ q: words });
});

// What was done to a row by a button, here.
document.addEventListener("row", ({ detail }) => detail?.id && note(detail.id));
document.addEventListener("htmx:load", ({ detail }) => detail.elt.matches?.(".row") && rows.came(detail.elt));
document.addEventListener("htmx:beforeRequest", ({ detail }) => rows.leaves(detail.elt));
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, pathInfo } = event.detail;
  if (!xhr.responseURL || new URL(xhr.responseURL).pathname === new URL(pathInfo.requestPath, location.href).pathname) return;
  event.detail.shouldSwap = false;
  location.reload(); // whoever is not logged in any more is asked to
});
document.addEventListener("htmx:responseError", ({ detail }) => say(detail.xhr.responseText));
document.addEventListener("htmx:sendError", () => say("The server cannot be reached; nothing was changed."));
document.addEventListener("htmx:timeout", () => say("The server did not answer: load the page again to see whether that was done."));

function say(words) {
  const isText = words && words.length < 300 && !words.includes("<");
  document.dispatchEvent(new CustomEvent("toast", { detail: isText ? words : "That did not work; nothing was changed." }));
}
