// Answers that are being given: shown as plain text until the stored message takes their place.

import { body, head } from "./article.js";

export class Answers {
  constructor(root) {
    this.place = root.querySelector("#answers");
    this.stored = new Set();
  }

  /** Show one more piece, or all that was said so far. */
  show({ type, answer, text }) {
    if (this.stored.has(answer)) return;
    const article = this.article(answer);
    const words = article.querySelector(".body");
    if (type === "answer") words.textContent = text;
    else words.append(text);
  }

  /** A stored answer gets no more pieces, and the end of a turn leaves none unfinished: each goes when the log has come so far. */
  heard({ kind, id, source, seq }) {
    if (kind === "message" && source === "agent") this.stored.add(id);
    for (const each of this.place.children) if (kind === "turn" || each.dataset.answer === id) each.dataset.seq ??= seq;
  }

  replacedBy(article) {
    this.stored.add(article.dataset.id); // it may be read before its last pieces come
    this.find(article.dataset.id)?.remove();
  }

  article(answer) {
    const found = this.find(answer);
    if (found) return found;
    const made = document.createElement("article");
    made.className = "event message agent streaming";
    made.dataset.answer = answer;
    made.append(head("Agent"), body(""));
    this.place.append(made);
    return made;
  }

  find(answer) {
    return [...this.place.children].find((each) => each.dataset.answer === answer);
  }
}
