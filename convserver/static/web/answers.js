// Answers that are being given: rendered by the server as they grow, until the stored message takes their place.

import { body, head } from "./article.js";
import { BackOff } from "./back_off.js";

const ANSWER_MS = 15_000; // a request may be dead without a word
const AGAIN_MS = 1_500; // after the first one that failed
const LATER_MS = 500; // after one that lacked what was heard of

export class Answers {
  /** `stored`: the ids of answers that were stored before; no more pieces of them are shown. */
  constructor(root, { stored = [], onShown }) {
    this.place = root.querySelector("#answers");
    this.address = root.dataset.answer;
    this.onShown = onShown;
    this.stored = new Set(stored);
    this.isAsking = false;
    this.tries = new BackOff(() => {
      this.isAsking = false;
      this.ask();
    }, AGAIN_MS);
    document.addEventListener("visibilitychange", () => this.ask());
  }

  /** Hear that an answer has grown; what it says by now is asked for. */
  show({ answer, index, through }) {
    if (this.stored.has(answer)) return;
    this.newest = { answer, piece: index ?? through };
    this.hasGrown = true;
    this.ask();
  }

  /** Fetch what is new, one request at a time, and not where nobody looks. */
  async ask() {
    if (this.isAsking || !this.hasGrown || document.visibilityState !== "visible") return;
    this.isAsking = true;
    this.hasGrown = false;
    const wait = await this.fetch().catch((problem) => {
      console.warn("an answer was not fetched:", problem);
      this.hasGrown = true;
    });
    if (wait === undefined) return this.tries.failed();
    this.tries.worked();
    this.tries.later(wait);
  }

  /** Show what the server has of the answer; return after how many milliseconds it may be asked again. */
  async fetch() {
    const { answer = "", version = "", finished = "", through = "" } = this.place.lastElementChild?.dataset ?? {};
    const query = new URLSearchParams({ answer, version, parts: finished, reasoning: through });
    const response = await fetch(`${this.address}?${query}`, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(ANSWER_MS) });
    if (!response.ok || response.redirected) throw new Error(`The server answered ${response.status}.`);
    if (response.status === 204) return 0;
    const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
    const preview = parsed.querySelector(".preview");
    if (!this.stored.has(preview.dataset.answer)) this.put(preview);
    const { wait, piece, answer: shown } = preview.dataset;
    const isBehind = this.newest?.answer === shown && Number(piece) < this.newest.piece;
    this.hasGrown ||= isBehind; // nobody says when the server has the last pieces before a pause
    return isBehind ? Math.max(Number(wait), LATER_MS) : Number(wait);
  }

  put({ dataset: { answer, version, finished, kept, from, through }, children }) {
    const article = this.article(answer);
    const words = article.querySelector(".body");
    const [thought] = [...children].filter((child) => child.matches(".reasoning"));
    thought?.remove();
    if (thought || Number(from) < Number(article.dataset.through ?? 0)) think(article, Number(from), thought?.textContent ?? "");
    while (words.children.length > Number(kept)) words.lastElementChild.remove();
    words.append(...[...children].map((part) => document.adoptNode(part)));
    Object.assign(article.dataset, { version, finished, through });
    this.onShown();
  }

  /** A stored answer gets no more pieces, and a call or the end of a turn leaves none unfinished: each goes when the log has come so far. */
  heard({ kind, id, source, seq }) {
    if (kind === "message" && source === "agent") this.stored.add(id);
    for (const each of this.place.children) if (kind === "turn" || kind === "tool_call" || each.dataset.answer === id) each.dataset.seq ??= seq;
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
    made.setAttribute("aria-label", "Agent, being written");
    made.append(head("Agent"), body(""));
    made.querySelector(".body").classList.remove("plain");
    this.place.append(made);
    return made;
  }

  find(answer) {
    return [...this.place.children].find((each) => each.dataset.answer === answer);
  }
}

/** Show what the agent thinks before it answers, folded; a text from the beginning takes the place of what is there. */
function think(article, from, text) {
  const details = article.querySelector(".reasoning") ?? folded(article);
  const shown = details.querySelector(".output");
  shown.textContent = from ? shown.textContent + text : text;
}

function folded(article) {
  const details = document.createElement("details");
  details.className = "reasoning";
  const summary = document.createElement("summary");
  summary.textContent = "Reasoning";
  const shown = document.createElement("pre");
  shown.className = "output";
  shown.dir = "auto";
  details.append(summary, shown);
  article.querySelector(".body").before(details);
  return details;
}
