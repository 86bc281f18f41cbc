// Messages on their way, and how far each has come: sending, sent, queued, seen, answered.

import { body, head } from "./article.js";
import { duration } from "./durations.js";
import { UnsentStore } from "./unsent_store.js";
import { Progress } from "./progress.js";
import { uuid } from "./uuid.js";

const BUSY_MS = 1000;
const KEPT_MS = 5_000; // a browser that does not say so by then has kept nothing
const ANSWERED_MS = 60_000; // what has no answer by then is sent again
const UNANSWERED = {
  failed: "Not answered: the agent failed",
  stopped: "Unfinished: the agent was stopped",
  dropped: "Not answered: the agent was stopped",
};

export class MessageQueue {
  /** `onAgain` hears the seq of a message to send once more, `onWorking` a message that a working agent refuses. */
  constructor(root, { user, id, send, isUploading, onCount, onAgain, onWorking }) {
    this.place = root.querySelector("#message-queue");
    this.kept = new UnsentStore(user, id);
    Object.assign(this, { transmit: send, isUploading, onCount, onAgain, onWorking });
    this.waiting = new Map(); // unacknowledged messages by id, in order; `later` says what one waits for
    this.stored = new Set(); // the seqs of those that are
    this.elsewhere = new Set(); // the seqs of those that another page has sent
    this.progress = new Progress(delivered(root.dataset));
    this.offered = -1; // the seq of what is offered to be sent again below the log
    this.queued = undefined; // until when what is sent now has to wait, in words
    this.steps = Promise.resolve(); // what is done to the store, one after the other
    this.sent = undefined; // the id of the one that the next one waits for
    this.isReady = false; // what an earlier page could not send is known
    addEventListener("beforeunload", (event) => this.isOnlyHere && event.preventDefault());
  }

  /** Show and send what an earlier page could not, before anything new. */
  begin() {
    this.inTurn(() => this.kept.all())
      .then((kept) => this.showFirst(kept), console.warn)
      .then(() => {
        this.isReady = true;
        this.go();
      });
  }

  add({ text, images, files, later }) {
    const kept = { id: uuid(), text, images, files, later, refusal: this.over };
    const message = this.show(kept);
    // Kept before it is sent: what cannot be kept is sent all the same.
    this.inTurn(() => this.kept.add(kept))
      .catch(() => this.keepHere(message))
      .then(() => {
        message.isKept = true;
        this.go();
      });
  }

  inTurn(step) {
    const late = () => new Promise((_, refuse) => setTimeout(() => refuse(new Error("the store of unsent messages is silent")), KEPT_MS));
    const done = this.steps.then(() => Promise.race([step(), late()]));
    this.steps = done.catch(console.warn);
    return done;
  }

  /** This browser keeps it no longer than this page is there. */
  keepHere(message) {
    message.isOnlyHere = true;
    this.showConnected(this.isConnected);
  }

  get isOnlyHere() {
    return [...this.waiting.values()].some((message) => message.isOnlyHere);
  }

  /** Connected again: send what was not acknowledged; the server stores each once. */
  resend() {
    clearTimeout(this.overdue);
    this.sent = undefined;
    this.go();
  }

  /** Send the next one, in order; it is gone from here when the server has it. */
  go() {
    if (!this.isReady || this.sent || this.pause) return;
    const next = [...this.waiting.values()].find((message) => !message.refusal && !this.isHeld?.(message));
    if (!next?.isKept) return;
    const { id, text, images, files } = next;
    if (!this.transmit({ type: "message", id, text, ...(images?.length ? { images } : {}), ...(files?.length ? { files } : {}) })) return;
    this.sent = id;
    this.showSending(next);
    this.awaitAnswer();
  }

  awaitAnswer() {
    clearTimeout(this.overdue);
    this.overdue = setTimeout(() => (this.isUploading() ? this.awaitAnswer() : this.resend()), ANSWERED_MS);
  }

  answered(frame) {
    if (this.sent === frame.id) this.sent = undefined;
    const message = this.waiting.get(frame.id);
    if (message && frame.type === "error") this.refused(message, frame);
    else if (message) this.acknowledged(message, frame.seq);
    this.go();
  }

  acknowledged(message, seq) {
    this.forget(message);
    message.article.dataset.seq = seq;
    this.stored.add(seq);
    this.label(message.article, seq);
    // Its event may be in the page already.
    const event = document.getElementById(`e${seq}`);
    if (event) this.replacedBy(event);
  }

  refused(message, { code, detail }) {
    const isWorking = code === "agent_working";
    if (!(isWorking && message.later) && !["busy", "unavailable"].includes(code)) {
      this.refuse(message, detail);
      return isWorking && this.onWorking(message);
    }
    this.say(message.article, message.later ?? `Not sent yet: ${detail} Retrying…`);
    this.pause ??= setTimeout(() => {
      this.pause = undefined;
      this.go();
    }, BUSY_MS);
  }

  /** The server would not read what was sent last. */
  refuseSent(why) {
    const message = this.waiting.get(this.sent);
    if (message) this.refuse(message, why);
  }

  /** Nothing is being sent while nothing can be. */
  showConnected(isConnected) {
    this.isConnected = isConnected;
    for (const message of this.waiting.values()) if (!message.refusal) this.showSending(message);
  }

  showSending(message) {
    if (message.later && this.sent !== message.id) return this.say(message.article, message.later, this.editing(message));
    const words = this.isConnected ? "Sending…" : "Waiting to be sent";
    this.say(message.article, message.isOnlyHere ? `${words} · Keep this tab open: the message is saved nowhere else` : words);
  }

  /** The connection has ended for good, and nothing more is sent. */
  end(why) {
    this.over = why;
    for (const message of this.waiting.values()) if (!message.refusal) this.refuse(message, why);
  }

  refuse(message, why) {
    message.refusal = why;
    this.count();
    this.inTurn(() => this.kept.refuse(message.id, why)).catch(() => {});
    this.showRefusal(message);
  }

  showRefusal(message) {
    message.article.dataset.state = "refused";
    const retry = button("Retry", () => this.add(this.takenAway(message)));
    const edit = this.editing(message);
    this.say(message.article, `Not sent: ${message.refusal}`, ...(this.over ? [edit] : [retry, edit]));
  }

  editing(message) {
    return button("Edit and resend", () => document.dispatchEvent(new CustomEvent("take-back", { detail: this.takenAway(message) })));
  }

  /** Take a message out of what is on its way, and return it. */
  takenAway(message) {
    message.article.remove();
    this.forget(message);
    return message;
  }

  count() {
    this.onCount([...this.waiting.values()].filter(({ refusal }) => !refusal).length);
  }

  forget({ id }) {
    this.waiting.delete(id);
    this.inTurn(() => this.kept.remove(id)).catch(() => {});
    this.count();
  }

  /** The stored event is in the page: what stood for it goes. */
  replacedBy(article) {
    const seq = Number(article.dataset.seq);
    for (const shown of this.place.querySelectorAll(`[data-seq="${seq}"]`)) shown.remove();
    this.label(article, seq);
    const sent = this.waiting.get(this.sent); // its ack may come late: it is shown once
    if (sent && article.matches(".user") && article.querySelector(".body")?.textContent.trim() === sent.text.trim()) sent.article.hidden = true;
  }

  heard(event, agent) {
    this.progress.heard(event, agent);
    this.relabel();
  }

  begun(seq) {
    this.progress.begun(seq);
    this.relabel();
  }

  seen(seqs) {
    this.progress.seen(seqs);
    this.relabel();
  }

  /** The agent was stopped: whoever did that has given up on what stands up to `through`. */
  giveUp(through) {
    this.progress.giveUp(through);
    this.relabel();
  }

  /** Say until when messages wait; what is `offered` below the log is not said twice. */
  showQueued(queued, offered) {
    if (this.queued === queued && this.offered === offered) return;
    [this.queued, this.offered] = [queued, offered];
    this.relabel();
  }

  /** Also show the delivery state of messages that were sent before this page was loaded. */
  follow(seqs) {
    for (const seq of seqs) this.stored.add(seq);
    this.relabel();
  }

  /** Label messages that another page sent only while they are queued or if they got no answer. */
  watch(seqs) {
    for (const seq of seqs) this.elsewhere.add(seq);
    this.relabel();
  }

  relabel() {
    for (const seq of [...this.stored, ...this.elsewhere]) {
      const article = document.getElementById(`e${seq}`) ?? this.place.querySelector(`[data-seq="${seq}"]`);
      if (article) this.label(article, seq);
    }
  }

  label(article, seq) {
    const isOwn = this.stored.has(seq);
    if (!isOwn && !this.elsewhere.has(seq)) return;
    const { name, tookMs } = this.progress.of(seq);
    if (name in UNANSWERED) return this.say(article, UNANSWERED[name], seq !== this.offered && button("Retry", () => this.onAgain(seq)));
    this.say(article, isOwn || (name === "sent" && this.queued) ? this.words(name, tookMs) : "");
  }

  words(name, tookMs) {
    if (name === "sent") return this.waits ?? (this.queued ? `Queued ${this.queued}` : "Sent");
    if (name === "answered") return tookMs >= 1000 ? `Answered in ${duration(tookMs)}` : "Answered";
    return name === "delivered" ? "Seen by the agent" : name;
  }

  say(article, words, ...buttons) {
    const line = article.querySelector(".delivery");
    const content = [words, ...buttons.filter(Boolean).flatMap((each) => [" ", each])];
    const told = `${words}${content.length}`;
    article.hidden = false;
    if (!line || (line.dataset.words ?? "1") === told) return;
    line.dataset.words = told;
    line.replaceChildren(...content);
  }

  /** Show what an earlier page has left, above what was written on this one. */
  showFirst(kept) {
    const newer = [...this.waiting.values()];
    this.waiting.clear();
    for (const message of kept) this.show(message).isKept = true;
    for (const message of newer) {
      this.waiting.set(message.id, message);
      this.place.append(message.article);
    }
    this.count();
  }

  show(kept) {
    const article = document.createElement("article");
    const message = { ...kept, article };
    article.className = "event message user unsent";
    article.append(head("You"), body(message.text));
    for (const source of message.images ?? []) {
      const image = document.createElement("img");
      image.src = source;
      image.alt = "Image to be sent";
      article.append(image);
    }
    for (const { name } of message.files ?? []) article.append(Object.assign(document.createElement("p"), { className: "note", textContent: name }));
    const line = document.createElement("p");
    line.className = "delivery";
    article.append(line);
    this.showSending(message);
    this.place.append(article);
    this.waiting.set(message.id, message);
    if (message.refusal) this.showRefusal(message);
    this.count();
    return message;
  }
}

/** What the server knows of the messages before this page. */
function delivered({ delivered: through, workingSince: since }) {
  return { through: Number(through), since: since ? Date.parse(since) : undefined };
}

function button(words, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = words;
  made.addEventListener("click", act);
  return made;
}
