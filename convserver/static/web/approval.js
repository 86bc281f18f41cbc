// Deciding about the call that waits for the user: fetched for an agent that works, since most logs are only read.

import { Reading } from "./reading.js";

const REFRESH_AGAIN_MS = 2000;

export class Approval {
  /** `ask` sends a frame and says whether it was sent; `refresh` fetches one call again. */
  constructor(root, { ask, refresh }) {
    this.box = root.querySelector("#approval");
    this.events = root.querySelector("#events");
    this.reason = root.querySelector("#reason");
    this.toEnd = root.querySelector("#to-end");
    this.ask = ask;
    this.refresh = refresh;
    this.refreshed = new Set();
    for (const button of this.box.querySelectorAll("button")) {
      // The second click of a double one is none: what it would fall on may have changed under the pointer.
      button.addEventListener("click", ({ detail }) => detail > 1 || this.decide(button.dataset.action));
    }
    new MutationObserver(() => this.enable()).observe(this.events, { childList: true, subtree: true });
    this.reading = new Reading(this.events, { onChange: () => this.enable() });
    this.reason.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      if (!event.repeat) this.decide("reject");
    });
  }

  /** Show it while a call is `asked` about; nothing can be decided while there is no connection. */
  show(isAsked, isConnected) {
    this.isConnected = isConnected;
    if (!isAsked || !isConnected) this.decided = undefined; // nobody knows whether it has arrived; the call's seq keeps it harmless
    if (this.box.hidden === isAsked) {
      this.box.hidden = !isAsked;
      this.reason.value = "";
      this.refreshed.clear();
    }
    this.enable();
  }

  /** The call in the page that waits for the user; one whose card cannot say so is the last without a result. */
  get call() {
    const open = [...this.events.querySelectorAll("article.tool_call:not(:has(> .results > *))")];
    return open.findLast((call) => call.querySelector(":scope > header .state.waiting")) ?? open.at(-1);
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
    for (const button of this.box.querySelectorAll("button")) {
      button.disabled = !decides || (button.dataset.action === "approve" && obstacle !== "");
    }
    const note = this.box.querySelector(".obstacle");
    if (note.textContent !== obstacle) note.textContent = obstacle;
    if (call) this.showWhole(call);
  }

  /** A call that came before the agent was known to wait for it does not show all of itself. */
  showWhole(call) {
    const { seq } = call.dataset;
    if (call.querySelector(":scope > .subject") || this.refreshed.has(seq)) return;
    this.refreshed.add(seq);
    this.refresh(Number(seq)).then(() => setTimeout(() => this.refreshed.delete(seq) && this.enable(), REFRESH_AGAIN_MS));
  }

  /** Approve or reject the call that is in the page, once; show the one that waits if it is not there. */
  decide(action) {
    if (this.box.hidden || this.isDecided) return;
    const { call } = this;
    if (!call) return this.showNewest("Read the call that needs your approval, then decide.");
    const obstacle = action === "approve" ? this.reading.obstacle(call) : "";
    if (obstacle) {
      this.reading.show(call);
      return toast(obstacle);
    }
    const { seq } = call.dataset;
    const reason = this.reason.value.trim();
    if (!this.ask(action, { type: "confirm", accept: action === "approve", reason, seq: Number(seq) })) return;
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

const toast = (words) => document.dispatchEvent(new CustomEvent("toast", { detail: words }));
