// The line that says how the connection stands, in words.

export class ConnectionLine {
  constructor(line, { onTry }) {
    this.line = line;
    this.words = line.querySelector(".words");
    this.ticking = this.words.firstElementChild; // unheard: what is written anew is read aloud
    this.button = line.querySelector("button");
    this.button.addEventListener("click", onTry);
    this.state = { name: "connecting", since: Date.now() };
    this.waiting = 0;
    setInterval(() => this.state.nextTry && this.write(), 1000);
  }

  show(state) {
    this.state = state;
    this.write();
  }

  /** Say how far the history has come that was missed; nothing when all is there. */
  showProgress(have, all) {
    this.progress = have < all ? `: ${have} of ${all}` : undefined;
    this.write();
  }

  showWaiting(count) {
    this.waiting = count;
    this.write();
  }

  write() {
    const isBehind = this.state.name === "open" && this.progress;
    this.line.dataset.state = isBehind ? "behind" : this.state.name;
    const kept = this.waiting ? ` · ${this.waiting} waiting to be sent` : "";
    const [words, ticking = "", rest = kept] = isBehind ? ["Catching up", this.progress, ""] : this.sentence();
    const said = words + rest;
    if (this.said !== said) this.words.replaceChildren(words, this.ticking, rest);
    this.said = said;
    this.ticking.textContent = ticking;
    this.button.hidden = !this.state.nextTry;
  }

  /** The words, then what ticks. */
  sentence() {
    const { name, since, why, nextTry, isBlocked } = this.state;
    switch (name) {
      case "open":
        return [isBlocked ? "Live updates come over HTTP; WebSockets are blocked" : "Connected"];
      case "connecting":
        return [since < Date.now() - 1000 ? `Reconnecting… Connection lost at ${clock(since)}` : "Connecting…"];
      case "waiting":
        return [`Reconnecting: ${why} since ${clock(since)}`, `. Retrying in ${seconds(nextTry)} s`];
      case "offline":
        return [`Offline since ${clock(since)}. Messages you send go out when you're back online`];
      default:
        return [`Disconnected: ${why}`, "", ""];
    }
  }
}

const clock = (moment) => new Date(moment).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const seconds = (moment) => Math.max(0, Math.ceil((moment - Date.now()) / 1000));
