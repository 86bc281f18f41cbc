// One conversation: its log, its socket, its agent and what is written to it.

import { AgentControls } from "./agent.js";
import { STATUSES } from "./agent_status.js";
import { Composer } from "./composer.js";
import { ConnectionLine } from "./connection.js";
import { Log } from "./log.js";
import { MessageQueue } from "./message_queue.js";
import { LiveSocket } from "./socket.js";

const TOO_LONG = 1009;
const LOGGED_OUT = 4401;
const NOT_FOUND = 4404;

const root = document.getElementById("conversation");
const { login, user } = document.body.dataset;
const id = root.dataset.id;

let asked = Number(root.dataset.asked); // the newest message to the agent, or -1
const queue = new MessageQueue(root, { user, id, send: (frame) => socket.send(frame), isUploading: () => socket.isUploading, onCount: (n) => line.showWaiting(n), onAgain: sayAgain, onWorking: (message) => whileWorking().then((it) => it.refused(message), console.warn) });
const log = new Log(root, { onShown: shown });
const agent = new AgentControls(root, {
  send: (frame) => socket.send(frame),
  refresh: (seq) => log.refresh(seq),
  isAnswered,
  canRetry: (status) => asked >= 0 && !(status === "stopped" && isAnswered()),
  onRetry: () => sayAgain(asked),
  onStatus: follow,
});
const line = new ConnectionLine(root.querySelector("#connection"), { onTry: () => socket.hurry() });
const composer = new Composer(document.getElementById("composer"), { user, id, onSend: (message) => say(message) });

let answers; // shows answers being given
let working; // says what messages do while the agent works
let elapsed; // shows how long the agent works
const stored = new Set(); // ids of answers that are given
let again; // a message is being sent once more
let cursor = Number(root.dataset.lastSeq); // the newest event known here
let place = root.dataset.cursor; // the same, as the server tells histories apart
let seen = Number(root.dataset.seen);
let was; // the name of the state that the agent was in last
let isPaused = root.dataset.execution === "paused"; // the turn, by the log
let isDeleted = false;
let isReplaying = true; // what is heard of the agent is newer than what is heard of the log
let announcing = false; // what is replayed is not read aloud
let leaving = false; // this page logs out

const socket = new LiveSocket({
  address: () => `/ws/conversations/${encodeURIComponent(id)}?after=${place}&payload=false`,
  overHttp: ({ HttpWire, requestsOf }) => new HttpWire({ address: () => `/api/native/conversations/${encodeURIComponent(id)}/stream?after=${place}&payload=false`, requestOf: requestsOf(id) }),
  onFrame: take,
  onState(state) {
    announcing = false;
    line.show(state);
    agent.showConnected(state.name === "open");
    queue.showConnected(state.name === "open");
    if (state.code === TOO_LONG) queue.refuseSent(state.why);
    if (state.name === "ended" && state.code !== LOGGED_OUT) queue.end(state.why);
    // What is written and what waits to be sent stay on this device.
    if (state.code === LOGGED_OUT && !leaving) import("./logged_out.js").then(({ logIn }) => logIn(id, login));
    if (state.name === "ended" && state.code !== LOGGED_OUT) agent.showGone(goneBecause(state));
  },
});

document.querySelector("form[data-log-out]")?.addEventListener("submit", () => (leaving = true));

// The conversation was restored in the list.
document.addEventListener("stands", ({ detail }) => detail === id && socket.state.name === "ended" && location.reload());

const history = () => import("./history.js");
root.onclick = (event) => {
  const link = event.target.closest("[data-beside], .run, #model");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  import(link.matches(".run") ? "./preview.js" : link.id === "model" ? "./models.js" : "./beside.js").then((it) => it.follow(link));
};

function take(frame) {
  // The server has another log by now.
  if (frame.code === "cursor_ahead" || frame.code === "history_replaced") return history().then(({ loadAnew }) => loadAnew(id));
  switch (frame.type) {
    case "hello":
      isReplaying = true;
      works(frame.loop, frame.last_seq <= cursor);
      agent.rename(frame.conversation.title);
      seen = frame.seen_through;
      line.showProgress(cursor + 1, frame.last_seq + 1);
      log.heard(frame.last_seq);
      queue.resend();
      look();
      return;
    case "event":
      frame.state = stateIn(frame);
      if (frame.seq >= cursor) [cursor, place] = [frame.seq, frame.cursor];
      if (frame.kind === "message" && frame.source === "user") asked = Math.max(asked, frame.seq);
      log.heard(frame.seq);
      working?.heard(frame);
      queue.heard(frame, agent);
      if (frame.kind === "message" && frame.source === "user") queue.watch([frame.seq]);
      if (answers) answers.heard(frame);
      else if (frame.kind === "message" && frame.source === "agent") stored.add(frame.id);
      if (frame.kind === "turn" && isPaused) showCutOff();
      if (frame.kind === "state") agent.approval?.heard(frame);
      if (frame.kind === "state" || frame.kind === "turn") isPaused = frame.kind === "state" && frame.state === "paused";
      line.showProgress(cursor + 1, log.end + 1);
      if (announcing) announce(frame);
      return;
    case "replay_complete":
      announcing = true;
      isReplaying = false;
      if (agent.status === "stopped") queue.giveUp(cursor);
      agent.write(); // what can be retried is known
      sweep();
      look();
      line.showProgress(1, 0);
      return;
    case "receipt":
      return queue.seen(frame.seqs);
    case "progress":
      return working?.progress(frame);
    case "delta":
    case "answer":
      showAnswer(frame);
      queue.begun(cursor + 1);
      return;
    case "conversation":
      if (frame.changes.deleted) isDeleted = true;
      if (frame.changes.loop) works(frame.changes.loop, true);
      if (frame.changes.title) agent.rename(frame.changes.title);
      return;
    case "ack":
    case "error":
      if (!agent.answered(frame)) queue.answered(frame);
      sweep();
  }
}

/** A paused turn ends here: the server marks its last answer as incomplete from now on. */
function showCutOff() {
  const last = [...root.querySelectorAll("#events article.message.agent")].at(-1);
  if (last) log.refresh(Number(last.dataset.seq));
}

/** Show what the agent does; once it works, it was asked all that the page has heard of. */
function works(loop, isAll) {
  agent.show(loop);
  if (isAll && agent.isWorking) queue.begun(cursor + 1);
}

/** The agent's state after an event, in a word of its wire: these frames come without payloads, and the column begins with it. */
function stateIn({ kind, text }) {
  return kind === "state" || kind === "turn" ? text.split(":")[0] : undefined;
}

/** Follow the agent into the state of this name. */
function follow(name) {
  if (name === "stopped" && was !== "stopped" && !isReplaying) queue.giveUp(cursor);
  was = name;
  queue.showQueued(STATUSES[name].queued, agent.offersRetry ? asked : -1);
  if (agent.isWorking || name === "waiting") prepare();
  elapsed?.show();
  working?.show();
}

/** Fetch what shows an agent at work once one works: most conversations are opened to be read. */
function prepare() {
  import("./answers.js").catch(() => {}); // first, since words come first
  log.showCalls().catch(() => {});
  showElapsed();
  whileWorking().catch(() => {});
}

async function whileWorking() {
  return (working = (await import("./while_working.js")).begun(root, { queue, composer, agent }));
}

async function showElapsed() {
  const { Elapsed } = await import("./elapsed.js").catch(() => ({}));
  if (!Elapsed) return;
  elapsed ??= new Elapsed(root, { since: () => (agent.isWorking ? queue.progress.since : undefined) });
  elapsed.show();
}

async function showAnswer(frame) {
  const { Answers } = answers ? {} : await import("./answers.js").catch(() => ({}));
  if (Answers) answers ??= new Answers(root, { stored, onShown: () => log.isFollowing && log.scrollToEnd() });
  answers?.show(frame);
}

function goneBecause({ code }) {
  if (code !== NOT_FOUND) return "unreachable";
  return isDeleted ? "deleted" : "unavailable";
}

function isAnswered() {
  return asked < 0 || queue.progress.of(asked).name === "answered";
}

/** Send what was said at `seq` once more. */
function sayAgain(seq) {
  again ??= import("./said_last.js")
    .then(({ saidAt }) => saidAt(id, seq))
    .then(say, () => document.dispatchEvent(new CustomEvent("toast", { detail: "Not sent: the server can't be reached right now." })))
    .finally(() => (again = undefined));
}

/** The seqs of the messages in the page that the agent was asked to answer and has not. */
function unanswered() {
  const articles = [...root.querySelectorAll("#events article.message.user")];
  return articles.map(({ dataset }) => Number(dataset.seq)).filter((seq) => seq > Number(root.dataset.answered) && seq <= asked);
}

/** What stands for an event goes when the log in the page has come so far. */
function sweep() {
  for (const each of root.querySelectorAll(":is(#answers, #message-queue) > [data-seq]")) if (Number(each.dataset.seq) <= log.last) each.remove();
}

function say(message) {
  queue.add(message);
  foldRepeats();
  log.goToEnd();
}

function shown(articles) {
  for (const article of articles) {
    if (answers) answers.replacedBy(article);
    else stored.add(article.dataset.id);
    queue.replacedBy(article);
  }
  sweep();
  foldRepeats();
  root.querySelector(".empty")?.remove();
  look();
}

function foldRepeats() {
  if (root.querySelectorAll("article.message.user").length > 1) import("./repeats.js").then(({ fold }) => fold(root), console.warn);
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
queue.begin();
foldRepeats();
if (performance.getEntriesByType("navigation")[0]?.type === "reload") history().then(({ sayReplaced }) => sayReplaced(id));
if (root.dataset.turnBegan) queue.progress.ended(root.dataset.turnState, Number(root.dataset.turnBegan));
agent.write();
queue.follow(unanswered());
queue.relabel();
if (root.dataset.turnBegan) import("./given_up.js").then(({ givenUp }) => queue.watch(givenUp(root, agent.status, queue.progress)));
if (matchMedia("(pointer: fine)").matches && !location.hash) composer.focus();
