// How far the agent has come with what is stored: seen, and how the turn that took it up has ended.

const ENDS = { awaiting_user_input: "Answered", finished: "Answered", error: "Failed" };

export class Progress {
  constructor() {
    this.seenBefore = 0; // the agent has taken up what stands before this seq
    this.turnBegan = undefined; // what stands before this seq is asked of the turn that is being played
    this.ends = []; // of turns, in order: what stands before `before` has come to this end
  }

  /** A turn answers what stood there when it began, not what came meanwhile; what is only recorded has no turns. */
  heard({ seq, kind, source, text }, { isWorking }) {
    if (kind === "turn") {
      this.end(this.turnBegan ?? seq, ENDS[text.split(":")[0]] ?? "Stopped");
      this.turnBegan = undefined;
    } else if (source === "agent") {
      if (isWorking) this.begun(seq);
      else if (kind === "message") this.end(seq, ENDS.finished);
      else this.seenBefore = seq;
    }
  }

  /** A turn has taken up what stands before `seq`. */
  begun(seq) {
    if (this.turnBegan === undefined) this.turnBegan = this.seenBefore = seq;
  }

  end(before, words) {
    this.seenBefore = before;
    this.ends.push({ before, words });
  }

  /** Say in a word how far a stored message has come. */
  of(seq) {
    const end = this.ends.find(({ before }) => seq < before);
    return end?.words ?? (seq < this.seenBefore ? "Seen" : "Stored");
  }
}
