// What the agent does, in words, and the buttons and keys that steer it.

const WORDS = {
  idle: "Ready",
  running: "Working",
  paused: "Paused",
  waiting_for_confirmation: "Waiting for your approval",
  finished: "Finished",
  error: "Stopped by an error",
  stuck: "Going in circles",
};
const ENDED = {
  stopped: "Stopped",
  crowded_out: "Stopped, since too many agents ran at once; a message starts it again",
  idle: "Asleep; a message wakes it",
  interrupted: "Interrupted; a message goes on",
  failed: "Failed; a message tries again",
};
const SUSPENDED = ["waiting_for_confirmation", "paused"]; // a turn that goes on, whatever became of its loop
const OVER = ["finished", "error"];
const KEYS = { s: "stop", p: "pause", a: "approve", r: "reject" };

export class AgentControls {
  constructor(root, { send }) {
    this.root = root;
    this.send = send;
    this.state = root.querySelector("#agent-state");
    this.approval = root.querySelector("#approval");
    this.working = root.querySelector("#working");
    this.events = root.querySelector("#events");
    this.reason = root.querySelector("#reason");
    this.asked = new Map();
    this.loop = { status: root.dataset.status, execution_status: root.dataset.execution, ended_by: "", error: "" };
    for (const button of root.querySelectorAll(".controls [data-action], .approval [data-action]")) {
      // The second click of a double one is none: what it would fall on may have changed under the pointer.
      button.addEventListener("click", ({ detail }) => detail > 1 || this.act(button.dataset.action));
    }
    new MutationObserver(() => this.enable()).observe(this.events, { childList: true, subtree: true });
    this.reason.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      if (!event.repeat) this.act("reject");
    });
    this.write();
  }

  get isWorking() {
    return this.loop.status !== "stopped" && this.loop.execution_status === "running";
  }

  show(loop) {
    this.loop = loop;
    this.isPausing &&= this.isWorking;
    this.write();
  }

  showConnected(isConnected) {
    this.isConnected = isConnected;
    this.decided = undefined; // nobody knows whether it has arrived; the call's seq keeps it harmless
    if (!isConnected && this.asked.size) toast("The connection broke: see whether that was done.");
    if (!isConnected) this.asked.clear();
    this.enable();
  }

  /** The call in the page that waits for the user; one whose card cannot say so is the last without a result. */
  get waitingCall() {
    const open = [...this.events.querySelectorAll("article.tool_call:not(:has(> .results > *))")];
    return open.findLast((call) => call.querySelector(":scope > header .state.waiting")) ?? open.at(-1);
  }

  /** Whether a decision was sent about the call that waits, and nothing has come of it yet. */
  get isDecided() {
    return this.decided !== undefined && this.decided === this.waitingCall?.dataset.seq;
  }

  /** Let the buttons be pressed that can do something. */
  enable() {
    for (const button of this.root.querySelectorAll(".controls button")) button.disabled = !this.isConnected;
    const decides = this.isConnected && !this.isDecided;
    for (const button of this.approval.querySelectorAll("button")) button.disabled = !decides;
  }

  rename(title) {
    this.root.querySelector("#title").textContent = title;
    document.title = `${title} · convserver`;
    const field = this.root.querySelector(".menu .rename input");
    if (field && field.value === field.defaultValue) field.defaultValue = field.value = title;
  }

  write() {
    const { status, execution_status: execution, error } = this.loop;
    const isThere = status === "running" || status === "starting";
    const words = this.words(isThere);
    this.state.querySelector(".words").textContent = error && execution === "error" ? `${words}: ${error}` : words;
    this.state.querySelector(".dot").className = `dot ${status === "starting" ? "starting" : execution}`;
    this.offer("pause", isThere && execution === "running");
    this.offer("run", execution === "paused");
    this.offer("stop", isThere && ["running", "waiting_for_confirmation", "paused"].includes(execution));
    this.working.hidden = !(isThere && execution === "running");
    const asks = execution === "waiting_for_confirmation";
    if (!asks) this.decided = undefined;
    this.enable();
    if (this.approval.hidden === asks) {
      this.approval.hidden = !asks;
      this.reason.value = "";
    }
  }

  words(isThere) {
    const { status, execution_status: execution, ended_by: endedBy } = this.loop;
    if (status === "starting") return "Starting";
    const goesOn = SUSPENDED.includes(execution) && status !== "error";
    if (!isThere && endedBy && !goesOn && !OVER.includes(execution)) return ENDED[endedBy] ?? "Ready";
    return this.isPausing ? "Pausing after this step" : (WORDS[execution] ?? execution);
  }

  offer(action, isOffered) {
    this.root.querySelector(`.controls [data-action="${action}"]`).hidden = !isOffered;
  }

  press(key) {
    const action = KEYS[key];
    if (action === "approve" || action === "reject") return !this.approval.hidden && this.act(action);
    if (action === "pause" && this.loop.execution_status === "paused") return this.act("run");
    if (action && !this.root.querySelector(`.controls [data-action="${action}"]`).hidden) this.act(action);
  }

  act(action) {
    if (action === "approve" || action === "reject") this.decide(action);
    else this.ask(action, { type: action });
  }

  /** Approve or reject the call that is in the page, once; show the one that waits if it is not there. */
  decide(action) {
    if (this.isDecided) return;
    const seq = this.waitingCall?.dataset.seq;
    if (seq === undefined) return this.showWaiting("Look at the call that waits, then decide.");
    const reason = this.reason.value.trim();
    if (!this.ask(action, { type: "confirm", accept: action === "approve", reason, seq: Number(seq) })) return;
    this.decided = seq;
    this.enable();
  }

  showWaiting(why) {
    this.root.querySelector("#to-end").click();
    toast(why);
  }

  /** Send a frame whose answer comes to `answered`; say whether it was sent. */
  ask(action, frame) {
    const id = `${action}-${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    if (!this.send({ ...frame, id })) {
      toast("Nothing was sent: the server cannot be reached just now.");
      return false;
    }
    this.asked.set(id, action);
    return true;
  }

  /** Say whether the frame answers something asked here. */
  answered({ type, id, detail }) {
    const action = this.asked.get(id);
    if (!this.asked.delete(id)) return false;
    if (action === "pause" && type === "ack") this.isPausing = this.isWorking; // it may be over by now
    if (type === "error") this.refused(action, detail);
    this.write();
    return true;
  }

  refused(action, why) {
    const isDecision = action === "approve" || action === "reject";
    if (isDecision) this.decided = undefined;
    if (isDecision && !this.approval.hidden) this.showWaiting(why);
    else toast(why);
  }
}

const toast = (words) => document.dispatchEvent(new CustomEvent("toast", { detail: words }));
