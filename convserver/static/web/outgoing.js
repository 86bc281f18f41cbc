// Messages on their way, and how far each has come: sending, stored, seen, answered.

import { body, head } from "./article.js";
import { Outbox } from "./outbox.js";
import { Progress } from "./progress.js";
import { uuid } from "./uuid.js";

const BUSY_MS = 1000;
const KEPT_MS = 5_000; // a browser that does not say so by then has kept nothing
const ANSWERED_MS = 60_000; // what has no answer by then is sent again

export class Outgoing {
  constructor(root, { user, id, send, isUploading, onCount }) {
    this.place = root.querySelector("#outgoing");
    this.outbox = new Outbox(user, id);
    this.transmit = send;
    this.isUploading = isUploading;
    this.onCount = onCount;
    this.waiting = new Map(); // by id, in their order: messages that are not acknowledged
    this.stored = new Set(); // the seqs of those that are
    this.progress = new Progress();
    this.steps = Promise.resolve(); // what is done to the outbox, one after the other
    this.sent = undefined; // the id of the one that was sent and not answered: the next one waits for that
    this.isReady = false; // what an earlier page could not send is known
    addEventListener("beforeunload", (event) => this.isOnlyHere && event.preventDefault());
  }

  /** Show and send what an earlier page could not, before anything new. */
  begin() {
    this.inTurn(() => this.outbox.all())
      .then((kept) => this.showFirst(kept), console.warn)
      .then(() => {
        this.isReady = true;
        this.go();
      });
  }

  add({ text, images }) {
    const kept = { id: uuid(), text, images, refusal: this.over };
    const message = this.show(kept);
    // Kept before it is sent: what cannot be kept is sent all the same.
    this.inTurn(() => this.outbox.add(kept))
      .catch(() => this.keepHere(message))
      .then(() => {
        message.isKept = true;
        this.go();
      });
  }

  inTurn(step) {
    const late = () => new Promise((_, refuse) => setTimeout(() => refuse(new Error("the outbox is silent")), KEPT_MS));
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

  /** The connection is there again: send again what was not acknowledged; the server stores each once. */
  resend() {
    clearTimeout(this.overdue);
    this.sent = undefined;
    this.go();
  }

  /** Send the next one, in order; it is gone from here when the server has it. */
  go() {
    if (!this.isReady || this.sent || this.pause) return;
    const next = [...this.waiting.values()].find(({ refusal }) => !refusal);
    if (!next?.isKept) return;
    const { id, text, images } = next;
    if (!this.transmit({ type: "message", id, text, ...(images?.length ? { images } : {}) })) return;
    this.sent = id;
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
    if (document.getElementById(`e${seq}`)) this.replacedBy(document.getElementById(`e${seq}`));
  }

  refused(message, { code, detail }) {
    if (code !== "busy" && code !== "unavailable") return this.refuse(message, detail);
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
    for (const message of this.waiting.values()) if (!message.refusal) this.say(message.article, this.sending(message));
  }

  sending({ isOnlyHere }) {
    const words = this.isConnected ? "Sending …" : "Waiting to be sent";
    return isOnlyHere ? `${words} · kept by this page alone` : words;
  }

  /** The connection has ended for good, and nothing more is sent. */
  end(why) {
    this.over = why;
    for (const message of this.waiting.values()) if (!message.refusal) this.refuse(message, why);
  }

  refuse(message, why) {
    message.refusal = why;
    this.count();
    this.inTurn(() => this.outbox.refuse(message.id, why)).catch(() => {});
    this.showRefusal(message);
  }

  showRefusal(message) {
    message.article.dataset.state = "refused";
    this.say(message.article, `Not stored: ${message.refusal}`);
    const back = document.createElement("button");
    back.type = "button";
    back.textContent = "Put it back into the box";
    back.addEventListener("click", () => {
      document.dispatchEvent(new CustomEvent("take-back", { detail: message }));
      message.article.remove();
      this.forget(message);
    });
    message.article.querySelector(".delivery").append(" ", back);
  }

  count() {
    this.onCount([...this.waiting.values()].filter(({ refusal }) => !refusal).length);
  }

  forget({ id }) {
    this.waiting.delete(id);
    this.inTurn(() => this.outbox.remove(id)).catch(() => {});
    this.count();
  }

  /** The stored event is in the page: what stood for it goes. */
  replacedBy(article) {
    const seq = Number(article.dataset.seq);
    for (const shown of this.place.querySelectorAll(`[data-seq="${seq}"]`)) shown.remove();
    this.label(article, seq);
  }

  heard(event, agent) {
    this.progress.heard(event, agent);
    this.relabel();
  }

  begun(seq) {
    this.progress.begun(seq);
    this.relabel();
  }

  relabel() {
    for (const seq of this.stored) {
      const article = document.getElementById(`e${seq}`) ?? this.place.querySelector(`[data-seq="${seq}"]`);
      if (article) this.label(article, seq);
    }
  }

  label(article, seq) {
    if (!this.stored.has(seq)) return;
    const far = this.progress.of(seq);
    this.say(article, far === "Stored" ? `Stored as ${seq}` : `${far} · ${seq}`);
  }

  say(article, words) {
    const line = article.querySelector(".delivery");
    if (line) line.textContent = words;
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
    article.className = "event message user outgoing";
    article.append(head("You"), body(message.text));
    for (const source of message.images ?? []) {
      const image = document.createElement("img");
      image.src = source;
      image.alt = "Image to be sent";
      article.append(image);
    }
    const line = document.createElement("p");
    line.className = "delivery";
    line.textContent = this.sending(message);
    article.append(line);
    this.place.append(article);
    this.waiting.set(message.id, message);
    if (message.refusal) this.showRefusal(message);
    this.count();
    return message;
  }
}
