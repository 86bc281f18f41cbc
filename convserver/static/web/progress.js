// How far the agent has come with what is stored: delivered, and how the turn that took it up has ended.

const ENDS = { awaiting_user_input: "answered", finished: "answered", error: "failed" };

export class Progress {
  /** `through`: delivered before this page; `since`: when the present turn began. */
  constructor({ through = -1, since } = {}) {
    this.seenBefore = through + 1; // the agent has taken up what stands before this seq
    this.turnBegan = undefined; // what stands before this seq is asked of the turn that is being played
    this.since = since; // when that turn began or went on, in milliseconds of the server's clock
    this.ends = []; // of turns, in order: what stands before `before` has come to this end
  }

  /** A turn answers what the agent has seen by its end; what is only recorded has no turns. */
  heard({ seq, kind, source, state, timestamp }, { isWorking }) {
    if (kind === "turn") {
      if (this.turnBegan === undefined) this.ends = this.ends.filter(({ tookMs }) => tookMs !== null);
      this.end(this.turnBegan ?? seq, ENDS[state] ?? this.cut ?? "stopped", Date.parse(timestamp));
      this.turnBegan = this.since = undefined;
      return;
    }
    if (kind === "state" && state === "running") this.since = Date.parse(timestamp);
    if (source !== "agent") return;
    if (isWorking) this.begun(seq);
    else if (kind === "message") this.end(seq, ENDS.finished); // unless its turn's end follows, as after a crash
    else this.seenBefore = seq;
  }

  /** A turn was over before this page: what stood before `before` has come to this end. */
  ended(state, before) {
    this.add({ before, name: ENDS[state] ?? "stopped" });
  }

  /** A turn has taken up what stands before `seq`. */
  begun(seq) {
    if (this.turnBegan === undefined) this.turnBegan = this.seenBefore = seq;
  }

  /** The turn that is played has taken up these messages: no turn before it has answered them. */
  seen(seqs) {
    const [first, through] = [seqs[0], seqs.at(-1)];
    for (const end of this.ends) end.before = Math.min(end.before, first);
    if (!(this.turnBegan > through)) this.turnBegan = this.seenBefore = through + 1;
  }

  end(before, name, at) {
    this.seenBefore = before;
    this.add({ before, name, tookMs: at ? at - this.since : null });
  }

  /** The end of a turn may be heard after the stop that has led to it. */
  add(end) {
    this.ends = [...this.ends, end].sort((one, other) => one.before - other.before);
  }

  /** Whoever stopped the agent has given up on what stands up to `through`. */
  giveUp(through) {
    this.add({ before: through + 1, name: "dropped" });
  }

  /** How far a stored message has come: sent, delivered, answered, failed, stopped, or dropped before its turn. */
  of(seq) {
    const end = this.ends.find(({ before }) => seq < before);
    return end ?? { name: seq < this.seenBefore ? "delivered" : "sent" };
  }
}
