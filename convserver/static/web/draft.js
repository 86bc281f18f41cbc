// What is being written: a row of the server with a version, mirrored here.

import { csrf } from "./csrf.js";
import { Mirror } from "./mirror.js";

const REST_MS = 400; // after the last key, before it is sent
const GET_MS = 30_000; // of a line that may be dead; the longest wait after failures, too
const PUT_MS = 120_000; // of megabytes

export class Draft {
  constructor({ user, id, read, write, onCopy, onNote }) {
    this.mirror = new Mirror(user, id);
    this.address = id ? `/api/native/conversations/${encodeURIComponent(id)}/draft` : "/api/native/draft";
    this.id = id || null;
    Object.assign(this, { read, write, onCopy, onNote });
    this.version = this.newest = 0; // the one taken here, and the newest heard of
    this.isDirty = false;
    this.wait = 0;
    this.busy = Promise.resolve();
    this.begin();
    this.pull();
    addEventListener("online", () => this.pull());
    addEventListener("pagehide", () => this.isDirty && this.push({ keepalive: true }));
    document.addEventListener("draft", ({ detail }) => detail.conversation === this.id && this.heard(detail.version));
  }

  /** Go on with what the device has kept; what was typed before this script ran stays, too. */
  begin() {
    const { text: typed } = this.read();
    const kept = this.mirror.draft;
    this.copy = this.mirror.copy;
    if (kept) {
      this.write(kept);
      this.version = kept.version;
      this.isDirty = kept.isDirty;
      this.isPartial = kept.isPartial; // its images are to be had from the server alone
      this.offered = kept.offered;
    }
    if (typed && !kept?.text.startsWith(typed)) this.putBefore(typed, kept);
    if (this.copy) this.onCopy(this.copy);
  }

  putBefore(typed, kept) {
    this.write({ ...kept, text: typed });
    this.isDirty = true;
    if (kept) this.setAside(kept);
    this.keep();
  }

  changed() {
    this.isDirty = true;
    clearTimeout(this.keeping);
    // Long texts of files take longer to keep than a key may take to be seen.
    if (this.read().files.length) this.keeping = setTimeout(() => this.keep(), 50);
    else this.keep();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.push(), REST_MS);
  }

  /** What was written is a message now. */
  sent() {
    this.isDirty = true;
    this.isPartial = false;
    this.keep();
    clearTimeout(this.timer);
    this.push();
  }

  /** Another device may have written while this one's words were under way. */
  heard(version) {
    this.newest = Math.max(this.newest, version);
    if (this.newest > this.version && !this.isPushing) this.pull();
  }

  /** Take what the server has, unless it lacks what was typed here. */
  pull() {
    return this.inTurn(async () => {
      const answer = await fetch(this.address, { signal: AbortSignal.timeout(GET_MS) });
      if (!answer.ok) return;
      const stored = await answer.json();
      const wasPartial = this.isPartial;
      this.isPartial = false;
      if (this.isDirty) {
        if (wasPartial) this.write(withAttached(this.read(), stored)); // and what was added meanwhile
        if (stored.version === this.version || same(stored, this.read())) await this.put(stored.version);
        else await this.clash(stored);
      } else if (wasPartial || stored.version !== this.version) this.take(stored);
    });
  }

  push(options) {
    return this.inTurn(() => this.isDirty && !this.isPartial && this.put(this.version, options)); // by then it may be put
  }

  async put(version, { keepalive = false } = {}) {
    const written = this.read();
    const body = JSON.stringify({ ...written, version });
    this.offered = written.text; // whether or not this page lives to hear that it was stored
    this.keep();
    this.isPushing = true;
    try {
      const answer = await fetch(this.address, {
        method: "PUT",
        headers: { "Content-Type": "application/json", "X-CSRFToken": csrf() },
        body,
        signal: AbortSignal.timeout(PUT_MS),
        keepalive: keepalive && body.length < 60_000,
      });
      if (answer.status === 409) return this.clash((await answer.json()).draft);
      if (answer.status === 404) return; // the conversation is to be made by its first message
      if (!answer.ok) this.onNote("This draft is saved on this device only.");
      if (answer.status >= 500) throw new Error(`The server answered ${answer.status}.`);
      if (!answer.ok) return;
      this.version = (await answer.json()).version;
      this.isDirty = !same(written, this.read());
      this.keep();
      this.onNote("");
      if (this.isDirty) this.changed();
    } finally {
      this.isPushing = false;
      this.heard(this.version);
    }
  }

  /** Another device was first: what is typed here stays, and what was typed there is kept. */
  async clash(stored) {
    this.setAside(stored.text === this.offered ? { ...stored, text: "" } : stored);
    this.version = stored.version;
    this.keep();
    await this.put(stored.version);
  }

  /** Keep what is not what is typed here. */
  setAside({ text, images, files }) {
    const mine = this.read();
    const [others, otherFiles] = [without(images, mine.images), without(files, mine.files)];
    if ((!text || text === mine.text) && !others.length && !otherFiles.length) return;
    this.copy = { text: joined(this.copy?.text ?? "", text), images: merged(this.copy?.images, others), files: merged(this.copy?.files, otherFiles) };
    this.mirror.copy = this.copy;
    this.onCopy(this.copy);
  }

  take(stored) {
    this.version = stored.version;
    this.write(stored);
    this.keep();
  }

  dropCopy() {
    this.copy = undefined;
    this.mirror.copy = undefined;
  }

  keep() {
    const { version, isDirty, isPartial, offered } = this;
    this.mirror.draft = { version, isDirty, isPartial, offered, ...this.read() };
  }

  /** One request at a time, tried again ever more seldom. */
  inTurn(step) {
    this.busy = this.busy.then(step).then(
      () => (this.wait = 0),
      () => {
        clearTimeout(this.timer);
        this.wait = Math.min(2 * this.wait + 2000 * (1 + Math.random()), GET_MS);
        this.timer = setTimeout(() => this.pull(), this.wait);
      },
    );
    return this.busy;
  }
}

/** One below the other, with an empty line between; what is blank adds nothing. */
export const joined = (one, other) => [one, other].filter((text) => text.trim()).join("\n\n");

const withAttached = ({ text, images, files }, stored) => ({ text, images: merged(stored.images, images), files: merged(stored.files, files) });

const merged = (one = [], other = []) => [...one, ...without(other, one)];

/** Those that are not among the others. */
function without(all = [], others = []) {
  const there = new Set(others.map(key));
  return all.filter((each) => !there.has(key(each)));
}

/** What tells an image or a file from others. */
const key = (each) => (each.name ? `${each.name} ${each.size} ${each.text}` : each);

const same = (one, other) => one.text === other.text && ["images", "files"].every((kind) => String(one[kind]?.map(key) ?? "") === String(other[kind]?.map(key) ?? ""));
