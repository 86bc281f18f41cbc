// What the agent does, in words, and the buttons and keys that steer it.

import { STATUSES, statusOf } from "./agent_status.js";

const KEYS = { s: "stop", p: "pause", a: "approve", r: "reject", d: "done" };

export class AgentControls {
  /** `refresh` fetches a call again; `onRetry` sends the last message again; `onStatus` hears the name of each state. */
  constructor(root, { send, refresh, isAnswered, canRetry, onRetry, onStatus }) {
    Object.assign(this, { root, send, refresh, isAnswered, canRetry, onRetry });
    this.state = root.querySelector("#agent-state");
    this.working = root.querySelector("#working");
    this.asked = new Map();
    this.next = root.querySelector("#next");
    const { status, execution, agent, endedBy, error, absence } = root.dataset;
    this.absence = absence;
    this.isAway = this.next.querySelector(".words").textContent !== ""; // as the page was made
    this.loop = { status, execution_status: execution, agent, ended_by: endedBy, error };
    for (const button of root.querySelectorAll(":is(.controls, .next) button[data-action]")) {
      // What the second click of a double one falls on may have changed.
      button.addEventListener("click", ({ detail }) => detail > 1 || this.act(button.dataset.action));
    }
    this.write();
    this.onStatus = onStatus;
  }

  get isWorking() {
    return this.loop.status !== "stopped" && this.loop.execution_status === "running";
  }

  show(loop) {
    this.isAway &&= loop.status === this.loop.status && loop.error === this.loop.error;
    this.loop = loop;
    this.isPausing &&= this.isWorking;
    this.isStopping &&= this.isThere && !this.isStopAnswered; // else it ends, or begins anew
    this.write();
  }

  /** The conversation cannot be reached any more; say why by the name of that state. */
  showGone(name) {
    this.gone = name;
    this.write();
  }

  get isThere() {
    return this.loop.status === "running" || this.loop.status === "starting";
  }

  /** The name of what is shown: what the server says, and what was asked here and is on its way. */
  get status() {
    if (this.gone) return this.gone;
    if (this.isStopping) return "stopping";
    const status = statusOf(this.loop);
    if (status === "waiting" && this.approval?.isOver) return "decided";
    if (status === "failed" && this.loop.error === this.absence) return "away";
    if (status === "interrupted" && this.loop.execution_status === "idle" && this.isAnswered()) return "ready"; // between two turns
    return status === "running" && this.isPausing ? "pausing" : status;
  }

  showConnected(isConnected) {
    this.isConnected = isConnected;
    if (!isConnected) {
      if (this.asked.size) toast("The connection was lost. Check whether your last action took effect.");
      this.asked.clear();
      this.isPausing = this.isStopping = false;
    }
    this.write();
  }

  /** Let the buttons be pressed that can do something. */
  enable() {
    for (const button of this.root.querySelectorAll(":is(.controls, .next) button")) button.disabled = !(this.isConnected || this.gone) || this.isUnderWay(button.dataset.action);
  }

  /** Whether an action was asked for, and what it leads to has not come yet. */
  isUnderWay(action) {
    return this.isStopping || (action === "pause" && this.isPausing) || [...this.asked.values()].includes(action);
  }

  rename(title) {
    this.root.querySelector("#title").textContent = title;
    document.title = `${title} · convserver`;
    const field = this.root.querySelector(".menu .rename input");
    if (field && field.value === field.defaultValue) field.defaultValue = field.value = title;
  }

  write() {
    const { status: name } = this;
    const { words, next, actions = [], controls = [] } = STATUSES[name];
    this.state.querySelector(".words").textContent = words;
    this.state.querySelector(".dot").className = `dot ${name === "starting" ? "starting" : this.dot}`;
    for (const action of ["pause", "stop"]) this.offer(action, this.isThere && controls.includes(action));
    this.showNext(next, actions);
    this.working.hidden = !(this.isThere && this.loop.execution_status === "running") || Boolean(this.gone);
    this.enable();
    this.onStatus?.(name);
    this.showApproval();
  }

  /** An agent that works may ask: what one decides with is there before. */
  async showApproval() {
    if (!this.approval && (this.isThere || this.asks)) {
      const { Approval } = await import("./approval.js").catch(() => ({}));
      if (Approval) this.approval ??= new Approval(this.root, { ask: (action, frame) => this.ask(action, frame), refresh: this.refresh, onOver: () => this.write() });
    }
    this.approval?.show(this.asks, this.isConnected);
  }

  get asks() {
    return this.status === "waiting";
  }

  get dot() {
    if (this.gone) return "";
    return this.loop.status === "error" ? "error" : this.loop.execution_status;
  }

  /** Say what the user can do now, and offer it. */
  showNext(next, actions) {
    const why = this.status === "failed" ? this.loop.error : (this.status === "away" || (this.isAway && !this.isThere && !this.gone)) && this.absence; // why a turn failed is in the log
    const words = why && why.startsWith(next) ? why : [next, why].filter(Boolean).join(" ");
    const said = this.next.querySelector(".words");
    if (said.textContent !== words) said.textContent = words; // else it is read aloud again
    for (const each of this.next.querySelectorAll("[data-action]")) each.hidden = !actions.includes(each.dataset.action) || (each.dataset.action === "retry" && !this.canRetry(this.status));
    this.offersRetry = !this.next.querySelector('[data-action="retry"]').hidden;
  }

  offer(action, isOffered) {
    this.root.querySelector(`.controls [data-action="${action}"]`).hidden = !isOffered;
  }

  press(key) {
    const action = KEYS[key];
    if (isDecision(action)) return this.approval?.decide(action);
    if (action === "pause" && this.status === "paused") return this.act("run");
    const buttons = [...this.root.querySelectorAll(`:is(.controls, .next) [data-action="${action}"]`)];
    if (buttons.some((button) => !button.hidden && !button.disabled)) this.act(action);
  }

  act(action) {
    if (action === "retry") return this.onRetry();
    if (action === "restore") return import("./restore.js").then(({ restore }) => restore(this.root.dataset.id));
    if (!this.ask(action, { type: action === "start" ? "run" : action })) return;
    if (action === "pause") this.isPausing = this.isWorking;
    if (action === "stop") [this.isStopping, this.isStopAnswered] = [true, false];
    this.write();
  }

  /** Send a frame whose answer comes to `answered`; say whether it was sent. */
  ask(action, frame) {
    const id = `${action}-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    if (!this.send({ ...frame, id })) {
      toast("Not sent: the server can't be reached right now.");
      return false;
    }
    this.asked.set(id, action);
    return true;
  }

  /** Say whether the frame answers something asked here. */
  answered({ type, id, detail }) {
    const action = this.asked.get(id);
    if (!this.asked.delete(id)) return false;
    if (action === "stop") this.isStopAnswered = true;
    if (action === "stop" && !this.isThere) this.isStopping = false;
    if (type === "error") this.refused(action, detail);
    this.write();
    return true;
  }

  refused(action, why) {
    if (action === "pause") this.isPausing = false;
    if (action === "stop") this.isStopping = false;
    if (isDecision(action)) this.approval.refused(why);
    else toast(why);
  }
}

const DECISIONS = new Set(["approve", "reject", "run_again", "done", "skip"]);
const isDecision = (action) => DECISIONS.has(action);

const toast = (words) => document.dispatchEvent(new CustomEvent("toast", { detail: words }));
