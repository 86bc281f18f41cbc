// What a message does that is sent while the agent works, as the conversation's menu says; loaded once an agent works.

const INTERRUPTED = "Interrupted by your next message";
const WORKING = "The agent is working…";
const LATER = "Will be sent when the agent is done";

/** By the choice: what a message `waits` for, and the `hint` in the empty box. */
const CHOICES = {
  queue: { waits: "Queued until this turn ends", hint: "Write for when the agent is done…" },
  steer: { waits: "Waiting for the agent's next step", hint: "Steer the agent…" },
  interrupt: { waits: "Interrupting the agent…", hint: "Interrupt the agent…" },
  reject: { waits: "Queued until this turn ends", hint: "The agent takes no messages until it is done" },
};

let made;

/** The one of this page. */
export const begun = (root, parts) => (made ??= new WhileWorking(root, parts));

class WhileWorking {
  constructor(root, { queue, composer, agent }) {
    Object.assign(this, { root, queue, composer, agent });
    this.invitation = composer.text.placeholder;
    queue.isHeld = ({ later }) => later && agent.isWorking;
    root.addEventListener("change", ({ target }) => target.id === "while-working" && this.show());
    const send = composer.onSend;
    composer.onSend = (message) => {
      this.box?.remove();
      send(message);
    };
    this.show();
  }

  get choice() {
    return this.root.querySelector("#while-working").value;
  }

  /** Say what a message does that is sent now, and send what had to wait. */
  show() {
    const { waits, hint } = this.agent.status === "running" ? CHOICES[this.choice] : {};
    this.composer.text.placeholder = hint ?? this.invitation;
    if (this.queue.waits !== waits) {
      this.queue.waits = waits;
      this.queue.relabel();
    }
    this.queue.go();
  }

  /** A turn that is cut off after a message was interrupted by that; each turn begins with the state of running. */
  heard({ kind, source, state, seq }) {
    if (kind === "turn" && document.querySelector("#model[data-next]")) import("./models.js").then((it) => it.refresh(), console.warn);
    if (kind === "turn") import("./files_changed.js").then((it) => it.showChanged(this.root, seq), console.warn);
    this.tell(WORKING);
    if (this.choice === "interrupt" && kind === "message" && source === "user" && this.agent.isWorking) this.queue.progress.cut = INTERRUPTED;
    if (kind === "state" && state === "running") delete this.queue.progress.cut;
  }

  /** A running tool tells how far it is. */
  progress({ text, done, total }) {
    const count = done === null || total === null ? "" : `${done} of ${total}`;
    this.tell([text || "The tool is running", count].filter(Boolean).join(" · "));
  }

  tell(words) {
    this.root.querySelector("#working .words").textContent = words;
  }

  /** The agent takes no messages now: let the user go on writing this one. */
  refused(message) {
    this.composer.takeBack(this.queue.takenAway(message));
    this.box ??= this.refusal();
    this.composer.form.querySelector(".images").before(this.box);
  }

  refusal() {
    const box = document.createElement("div");
    const words = document.createElement("p");
    const later = document.createElement("button");
    box.className = "conflict refused";
    box.setAttribute("role", "status");
    words.textContent = "Not sent: the agent takes no messages until it is done.";
    later.type = "button";
    later.textContent = "Send when it is done";
    later.addEventListener("click", () => this.composer.submit({ later: LATER }));
    box.append(words, later);
    return box;
  }
}
