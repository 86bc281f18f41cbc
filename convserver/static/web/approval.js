// Deciding about the call that waits for the user, for an approval or for a word about what became of it: fetched for
// an agent that works, since most logs are only read.

import { Reading } from "./reading.js";

const REFRESH_AGAIN_MS = 2000;
/** What the keys of an approval do where the outcome of a call is unknown. */
const OUTCOMES = { approve: "run_again", reject: "skip" };
/** The decisions that let a call run. */
const RUNNING = new Set(["approve", "run_again"]);
const ASKING = new Set(["awaiting_user_confirmation", "waiting_for_confirmation"]);
/** The states that a decision leads to, by the event's wire. */
const DECIDED = { v0: new Set(["user_confirmed", "user_rejected"]), v1: new Set(["running", "idle"]) };

export class Approval {
  /** `ask` sends a frame and says whether it was sent; `refresh` fetches one call again; `onOver` hears of decisions. */
  constructor(root, { ask, refresh, onOver }) {
    this.box = root.querySelector("#approval");
    this.events = root.querySelector("#events");
    this.reason = root.querySelector("#reason");
    this.always = this.box.querySelector("[name=always]");
    this.toEnd = root.querySelector("#to-end");
    this.ask = ask;
    this.refresh = refresh;
    this.onOver = onOver;
    this.isOver = "decided" in root.dataset; // it is decided, and the agent has not gone on yet
    if (this.isOver) queueMicrotask(onOver);
    this.refreshed = new Set();
    for (const button of this.box.querySelectorAll("button")) {
      // The second click of a double one is none: what it would fall on may have changed under the pointer.
      button.addEventListener("click", ({ detail }) => detail > 1 || this.decide(button.dataset.action));
    }
    new MutationObserver(() => this.enable()).observe(this.events, { childList: true, subtree: true });
    this.reading = new Reading(this.events, { onChange: () => this.enable() });
    this.reason.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      if (!event.repeat) this.decide(this.isUntold ? "done" : "reject");
    });
  }

  /** Hear of a state in the log: a decision about the calls that wait, or others that do. */
  heard({ dialect, state }) {
    const isDecided = DECIDED[dialect]?.has(state);
    if (!isDecided && !ASKING.has(state)) return;
    this.isOver = isDecided;
    if (isDecided) for (const call of this.open.filter(waits)) this.refresh(Number(call.dataset.seq));
    this.onOver();
  }

  /** Show it while a call is `asked` about; nothing can be decided while there is no connection. */
  show(isAsked, isConnected) {
    this.isConnected = isConnected;
    if (!isAsked || !isConnected) this.decided = undefined; // nobody knows whether it has arrived; the call's seq keeps it harmless
    if (this.box.hidden === isAsked) {
      this.box.hidden = !isAsked;
      this.reason.value = this.always.value = "";
      this.refreshed.clear();
    }
    this.enable();
  }

  /** The calls in the page without a result. */
  get open() {
    return [...this.events.querySelectorAll("article.tool_call:not(:has(> .results > *))")];
  }

  /** The call in the page that waits for the user; one whose card cannot say so is the last without a result. */
  get call() {
    const { open } = this;
    return open.findLast(waits) ?? open.at(-1);
  }

  /** Whether the user is asked what became of the call, and not for an approval. */
  get isUntold() {
    return Boolean(this.call?.querySelector(":scope > header .state.untold"));
  }

  /** Whether a decision was sent about the call that waits, and nothing has come of it yet. */
  get isDecided() {
    return this.decided !== undefined && this.decided === this.call?.dataset.seq;
  }

  /** Let the buttons be pressed that can do something. */
  enable() {
    const decides = this.isConnected && !this.isDecided;
    const call = this.box.hidden ? undefined : this.call;
    const obstacle = call ? this.reading.obstacle(call) : "";
    this.askAbout(this.isUntold ? "outcome" : "approval");
    this.always.hidden = this.isUntold || !call?.matches("[data-allowable]");
    for (const button of this.box.querySelectorAll("button")) {
      button.disabled = !decides || (RUNNING.has(button.dataset.action) && obstacle !== "");
    }
    const note = this.box.querySelector(".obstacle");
    if (note.textContent !== obstacle) note.textContent = obstacle;
    if (call) for (const each of waits(call) ? [call] : this.open) this.showWhole(each);
  }

  /** Ask for an approval, or about an `outcome`. */
  askAbout(subject) {
    if (this.box.dataset.asks === subject) return;
    this.box.dataset.asks = subject;
    const [label, said] = subject === "outcome" ? ["The agent asks what became of a call", "What happened"] : ["The agent asks for your approval", "Reason"];
    this.box.setAttribute("aria-label", label);
    this.box.querySelector("label").textContent = said;
    this.reason.placeholder = `${said} (optional)`;
    for (const each of this.box.querySelectorAll("[data-about]")) each.hidden = each.dataset.about !== subject;
  }

  /** A call that came before the agent was known to wait for it does not show all of itself. */
  showWhole(call) {
    const { seq } = call.dataset;
    if (call.querySelector(":scope > .subject") || this.refreshed.has(seq)) return;
    this.refreshed.add(seq);
    this.refresh(Number(seq)).then(() => setTimeout(() => this.refreshed.delete(seq) && this.enable(), REFRESH_AGAIN_MS));
  }

  /** Decide about the call that is in the page, once; show the one that waits if it is not there. */
  decide(key) {
    if (this.box.hidden || this.isDecided) return;
    const { call, isUntold } = this;
    const action = isUntold ? (OUTCOMES[key] ?? key) : key;
    if (!isUntold && action === "done") return;
    if (!call) return this.showNewest("Read the call that needs your approval, then decide.");
    const obstacle = RUNNING.has(action) ? this.reading.obstacle(call) : "";
    if (obstacle) {
      this.reading.show(call);
      return toast(obstacle);
    }
    const { seq } = call.dataset;
    const words = this.reason.value.trim();
    const always = action === "approve" && !this.always.hidden && this.always.value;
    const decision = isUntold ? { outcome: action, text: words } : { accept: action === "approve", reason: words, ...(always && { always }) };
    if (!this.ask(action, { type: "confirm", ...decision, seq: Number(seq) })) return;
    this.decided = seq;
    this.enable();
  }

  refused(why) {
    this.decided = undefined;
    if (this.box.hidden) toast(why);
    else this.showNewest(why);
  }

  showNewest(why) {
    this.toEnd.click();
    toast(why);
  }
}

const waits = (call) => call.querySelector(":scope > header .state.waiting");
const toast = (words) => document.dispatchEvent(new CustomEvent("toast", { detail: words }));
