// Where one writes: several lines, images by choice, paste and drop; a draft that outlives everything.

import { Draft, joined } from "./draft.js";

const MESSAGE_MAX_BYTES = 16 * 1024 * 1024 - 1024; // of JSON, with room for what else is in a frame
const FETCHING = "Images are still loading. Send your message in a moment.";

export class Composer {
  /** `ready`, if given, is waited for before a message is sent; until then it stays in the box. */
  constructor(form, { user, id, onSend, ready }) {
    Object.assign(this, { form, onSend, ready });
    this.text = form.querySelector("textarea");
    this.images = [];
    this.readings = 0; // files that are on their way into it
    this.list = form.querySelector(".images");
    this.files = form.querySelector('input[type="file"]');
    this.noteLine = form.querySelector(".note");
    this.draft = new Draft({
      user,
      id,
      read: () => ({ text: this.text.value, images: this.images }),
      write: (draft) => this.put(draft),
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
      if (event.submitter?.name === "cue") this.put({ text: event.submitter.value, images: this.images }, true);
      this.submit();
    });
    this.form.querySelector('[data-action="add-image"]').addEventListener("click", () => this.files.click());
    this.files.addEventListener("change", () => this.add(this.files.files).then(() => (this.files.value = "")));
    // Once somebody writes, images can be added without a server, too.
    this.text.addEventListener("keydown", () => import("./images.js").catch(() => {}), { once: true });
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

  get isEmpty() {
    return !this.text.value.trim() && !this.images.length;
  }

  submit(more) {
    if (this.isEmpty || this.isWaiting || this.isHeld()) return;
    if (this.ready) this.sendWhenReady();
    else this.send(more);
  }

  async sendWhenReady() {
    this.isWaiting = true;
    await this.ready();
    this.isWaiting = false;
    if (!this.isEmpty && !this.isHeld()) this.send();
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
    const { size } = new Blob([JSON.stringify({ text: this.text.value, images: this.images })]);
    if (size > MESSAGE_MAX_BYTES) this.note(`This message is ${Math.ceil(size / 2 ** 20)} MB. The limit is 16 MB: send it in parts.`);
    return size > MESSAGE_MAX_BYTES;
  }

  send(more) {
    this.note("");
    this.onSend({ text: this.text.value.trim(), images: this.images, ...more });
    this.put({ text: "", images: [] });
    this.draft.sent();
    this.focus();
  }

  changed() {
    if (!this.isWaiting) this.note("");
    this.fit();
    this.draft.changed();
  }

  /** Show this as what is being written; `isEdit` when it is to be kept as if typed. */
  put({ text, images }, isEdit = false) {
    if (this.text.value !== text) this.text.value = text;
    this.images = images ?? [];
    this.unsay();
    this.showImages();
    this.fit();
    if (isEdit) this.draft.changed();
  }

  fit() {
    this.text.rows = Math.min(12, Math.max(1, this.text.value.split("\n").length));
  }

  took(event, transfer) {
    const files = [...(transfer?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  async add(files) {
    const before = this.images;
    this.note("");
    this.readings++;
    for (const file of files) await this.addImage(file);
    this.readings--;
    this.unsay();
    if (this.images === before) return;
    this.showImages();
    this.draft.changed();
  }

  async addImage(file) {
    const reading = import("./images.js").then(({ read }) => read(file, this.images));
    const { image, problem = `${file.name} can't be read.` } = await reading.catch(() => ({}));
    if (image) this.images = [...this.images, image];
    else this.note(problem);
  }

  showImages() {
    this.list.hidden = !this.images.length;
    if (this.list.hidden) this.list.replaceChildren();
    else import("./images.js").then(({ item }) => this.list.replaceChildren(...this.images.map((source, index) => item(source, index, () => this.remove(index)))), console.warn);
  }

  remove(index) {
    this.images = this.images.filter((_, each) => each !== index);
    this.showImages();
    this.draft.changed();
    this.focus();
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

  takeBack({ text, images }) {
    this.put({ text: joined(text, this.text.value), images: [...(images ?? []), ...this.images] }, true);
    this.focus();
  }
}
