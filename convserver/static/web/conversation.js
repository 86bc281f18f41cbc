// One conversation: its log, its socket, its agent and what is written to it.

import { AgentControls } from "./agent.js";
import { Answers } from "./answers.js";
import { Composer } from "./composer.js";
import { ConnectionLine } from "./connection.js";
import { Log } from "./log.js";
import { Outgoing } from "./outgoing.js";
import { LiveSocket } from "./socket.js";

const TOO_LONG = 1009;
const LOGGED_OUT = 4401;

const root = document.getElementById("conversation");
const { login, user } = document.body.dataset;
const id = root.dataset.id;

const answers = new Answers(root);
const outgoing = new Outgoing(root, { user, id, send: (frame) => socket.send(frame), isUploading: () => socket.isUploading, onCount: (n) => line.showWaiting(n) });
const log = new Log(root, { onShown: shown });
const agent = new AgentControls(root, { send: (frame) => socket.send(frame) });
const line = new ConnectionLine(root.querySelector("#connection"), { onTry: () => socket.hurry() });
const composer = new Composer(document.getElementById("composer"), { user, id, onSend: (message) => say(message) });

let cursor = Number(root.dataset.lastSeq); // the newest event that this page has heard of
let seen = Number(root.dataset.seen);
let announcing = false; // what is replayed is not read aloud
let leaving = false; // this page logs out, and the answer to that says where to go

const socket = new LiveSocket({
  address: () => `/ws/conversations/${encodeURIComponent(id)}?after=${cursor}&payload=false`,
  onFrame: take,
  onState(state) {
    announcing = false;
    line.show(state);
    agent.showConnected(state.name === "open");
    outgoing.showConnected(state.name === "open");
    if (state.code === TOO_LONG) outgoing.refuseSent(state.why);
    if (state.name === "ended" && state.code !== LOGGED_OUT) outgoing.end(state.why);
    // What is written and what waits to be sent stay on this device.
    if (state.code === LOGGED_OUT && !leaving) logIn();
  },
});

document.querySelector("form[data-log-out]")?.addEventListener("submit", () => (leaving = true));

// The list hears of it when a conversation that was deleted is brought back.
document.addEventListener("stands", ({ detail }) => detail === id && socket.state.name === "ended" && location.reload());

/** Another tab may have logged in again. */
async function logIn() {
  const answer = await fetch(`/api/native/conversations/${encodeURIComponent(id)}`).catch(() => undefined);
  if (answer?.ok) location.reload();
  else location.href = `${login}?${new URLSearchParams({ next: location.pathname + location.search + location.hash })}`;
}

function take(frame) {
  // The log that this page shows is not there any more: the server has one from a backup, or a new one.
  if (frame.code === "cursor_ahead") return location.reload();
  switch (frame.type) {
    case "hello":
      works(frame.loop, frame.last_seq <= cursor);
      agent.rename(frame.conversation.title);
      seen = frame.seen_through;
      line.showProgress(cursor + 1, frame.last_seq + 1);
      log.heard(frame.last_seq);
      outgoing.resend();
      look();
      return;
    case "event":
      cursor = Math.max(cursor, frame.seq);
      log.heard(frame.seq);
      outgoing.heard(frame, agent);
      answers.heard(frame);
      line.showProgress(cursor + 1, log.end + 1);
      if (announcing) announce(frame);
      return;
    case "replay_complete":
      announcing = true;
      sweep();
      look();
      line.showProgress(1, 0);
      return;
    case "delta":
    case "answer":
      answers.show(frame);
      outgoing.begun(cursor + 1);
      if (log.isFollowing) log.scrollToEnd();
      return;
    case "conversation":
      if (frame.changes.loop) works(frame.changes.loop, true);
      if (frame.changes.title) agent.rename(frame.changes.title);
      return;
    case "ack":
    case "error":
      if (!agent.answered(frame)) outgoing.answered(frame);
      sweep();
  }
}

/** Show what the agent does; where it has begun to work it was asked what the page has heard of, if that is all. */
function works(loop, isAll) {
  agent.show(loop);
  if (isAll && agent.isWorking) outgoing.begun(cursor + 1);
}

/** What stands for an event goes when the log in the page has come so far. */
function sweep() {
  for (const each of root.querySelectorAll(":is(#answers, #outgoing) > [data-seq]")) if (Number(each.dataset.seq) <= log.last) each.remove();
}

function say(message) {
  outgoing.add(message);
  log.goToEnd();
}

function shown(articles) {
  for (const article of articles) {
    answers.replacedBy(article);
    outgoing.replacedBy(article);
  }
  sweep();
  root.querySelector(".empty")?.remove();
  look();
}

function announce({ kind, source, text }) {
  if (kind === "message" && source === "agent") root.querySelector("#heard").textContent = `Agent: ${text.slice(0, 500)}`;
}

/** Note what the user has before their eyes. */
function look() {
  if (document.visibilityState !== "visible" || !log.isWhole || log.last <= seen) return;
  if (socket.send({ type: "seen", through: log.last })) seen = log.last;
}

document.addEventListener("visibilitychange", look);
log.scroller.addEventListener("scroll", look, { passive: true });
document.addEventListener("key", ({ detail: key }) => agent.press(key));
log.begin();
outgoing.begin();
if (matchMedia("(pointer: fine)").matches && !location.hash) composer.focus();
