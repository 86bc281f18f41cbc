// Where one writes: several lines, images and files by choice, paste and drop; a draft that outlives everything.

import { Draft, joined } from "./draft.js";

const MESSAGE_MAX_BYTES = 16 * 1024 * 1024 - 1024; // of JSON, with room for what else is in a frame
const PASTE_MAX_CHARS = 8000; // a longer one becomes a file
const FETCHING = "Attachments are still loading. Send your message in a moment.";
const attached = () => import("./attached.js");

export class Composer {
  /** `ready`, if given, is waited for before a message is sent; until then it stays in the box. */
  constructor(form, { user, id, onSend, ready }) {
    Object.assign(this, { form, id, onSend, ready });
    this.text = form.querySelector("textarea");
    this.images = [];
    this.files = [];
    this.readings = 0; // files that are on their way into it
    this.list = form.querySelector(".images");
    this.chooser = form.querySelector('input[type="file"]');
    this.noteLine = form.querySelector(".note");
    this.draft = new Draft({
      user,
      id,
      read: () => ({ ...this.written, files: this.files.filter((file) => !file.waiting) }),
      write: (draft) => this.put({ ...draft, files: [...(draft.files ?? []), ...this.files.filter((file) => file.waiting)] }),
      onCopy: (copy) => import("./copies.js").then(({ offer }) => offer(this, copy), console.warn),
      onNote: (words) => this.noteOfDraft(words),
    });
    this.listen();
  }

  listen() {
    this.text.addEventListener("input", () => this.changed());
    this.text.addEventListener("keydown", (event) => this.pressed(event));
    this.text.addEventListener("paste", (event) => this.took(event, event.clipboardData));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (event.submitter?.name === "cue") this.put({ ...this.written, text: event.submitter.value }, true);
      this.submit();
    });
    this.form.querySelector('[data-action="attach"]').addEventListener("click", () => this.chooser.click());
    this.chooser.addEventListener("change", () => this.add(this.chooser.files).then(() => (this.chooser.value = "")));
    // Once somebody writes, images and long texts can be added without a server, too.
    this.text.addEventListener("keydown", () => attached().catch(() => {}), { once: true });
    document.addEventListener("take-back", ({ detail }) => this.takeBack(detail));
    document.addEventListener("dragover", (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault());
    document.addEventListener("drop", (event) => this.took(event, event.dataTransfer));
  }

  focus() {
    this.text.focus({ preventScroll: true });
  }

  pressed(event) {
    const isTouch = matchMedia("(pointer: coarse)").matches;
    if (event.key !== "Enter") return;
    if (event.ctrlKey || event.metaKey || (!event.shiftKey && !event.altKey && !isTouch)) {
      event.preventDefault();
      this.submit();
    }
  }

  /** What is being written, as a message has it. */
  get written() {
    return { text: this.text.value, images: this.images, files: this.files };
  }

  get isEmpty() {
    return !this.text.value.trim() && !this.images.length && !this.files.length;
  }

  submit(more) {
    if (this.isEmpty || this.isWaiting || this.isHeld()) return;
    if (this.ready) this.sendWhenReady();
    else this.send(more);
  }

  async sendWhenReady() {
    this.isWaiting = true;
    const id = await this.ready();
    const problem = this.files.some((file) => file.waiting) && (await attached().then((it) => it.upload(this, id)));
    this.isWaiting = false;
    if (problem) this.note(problem);
    else if (!this.isEmpty && !this.isHeld()) this.send();
  }

  /** Say so if what was written is not all here, or more than one message holds. */
  isHeld() {
    const { isPartial } = this.draft;
    if (!isPartial && !this.readings) return this.isTooLong;
    this.note(FETCHING);
    if (isPartial) this.draft.pull();
    return true;
  }

  /** Say so if one message cannot hold what was written. */
  get isTooLong() {
    const { size } = new Blob([JSON.stringify(this.written)]);
    if (size > MESSAGE_MAX_BYTES) this.note(`This message is ${Math.ceil(size / 2 ** 20)} MB. The limit is 16 MB: send it in parts.`);
    return size > MESSAGE_MAX_BYTES;
  }

  send(more) {
    this.note("");
    this.onSend({ ...this.written, text: this.text.value.trim(), ...more });
    this.put({ text: "" });
    this.draft.sent();
    this.focus();
  }

  changed() {
    if (!this.isWaiting) this.note("");
    this.fit();
    this.draft.changed();
  }

  /** Show this as what is being written; `isEdit` when it is to be kept as if typed. */
  put({ text, images = [], files = [] }, isEdit = false) {
    if (this.text.value !== text) this.text.value = text;
    Object.assign(this, { images, files });
    this.unsay();
    this.showAttached();
    this.fit();
    if (isEdit) this.draft.changed();
  }

  fit() {
    this.text.rows = Math.min(12, Math.max(1, this.text.value.split("\n").length));
  }

  took(event, transfer) {
    const files = [...(transfer?.files ?? [])];
    if (files.length) {
      event.preventDefault();
      this.add(files);
    } else if (event.type === "paste" && transfer?.getData("text").length > PASTE_MAX_CHARS) {
      event.preventDefault();
      const text = transfer.getData("text");
      attached().then((it) => it.paste(this, text), () => this.insert(text));
    }
  }

  insert(text) {
    this.text.setRangeText(text, this.text.selectionStart, this.text.selectionEnd, "end");
    this.changed();
  }

  async add(files) {
    const { images, files: others } = this;
    this.note("");
    this.readings++;
    let problem;
    for (const file of files) problem = (await attached().then((it) => it.add(this, file)).catch(() => `${file.name} can't be read.`)) ?? problem;
    this.readings--;
    this.note(problem ?? "");
    if (this.images !== images || this.files !== others) this.changedAttached();
  }

  changedAttached() {
    this.showAttached();
    this.draft.changed();
  }

  showAttached() {
    this.list.hidden = !this.images.length && !this.files.length;
    if (this.list.hidden) this.list.replaceChildren();
    else attached().then((it) => it.show(this), console.warn);
  }

  note(words) {
    this.said = words;
    this.showNote();
  }

  /** What is awaited has come. */
  unsay() {
    if (this.said === FETCHING) this.note("");
  }

  /** What is said of the draft shows while nothing else is said, and takes nothing else away. */
  noteOfDraft(words) {
    this.saidOfDraft = words;
    this.showNote();
  }

  showNote() {
    const words = this.said || this.saidOfDraft || "";
    if (this.noteLine.textContent !== words) this.noteLine.textContent = words; // else it is read aloud again
  }

  takeBack({ text, images = [], files = [] }) {
    this.put({ text: joined(text, this.text.value), images: [...images, ...this.images], files: [...files, ...this.files] }, true);
    this.focus();
  }
}
