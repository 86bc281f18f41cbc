// Trying again what failed: ever more seldom, and at once when something has become better.

const LONGEST_MS = 30_000;

export class BackOff {
  constructor(act, firstMs) {
    Object.assign(this, { act, firstMs, ms: firstMs });
    for (const name of ["online", "visibilitychange"]) addEventListener(name, () => this.hurry());
  }

  /** Act after this wait, or after a failure: pages that lost the server together do not ask together. */
  later(ms = this.ms * (0.75 + Math.random() / 2)) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.go(), ms);
  }

  failed() {
    this.later();
    this.ms = Math.min(2 * this.ms, LONGEST_MS);
  }

  worked() {
    this.ms = this.firstMs;
  }

  hurry() {
    if (this.timer && this.ms > this.firstMs && document.visibilityState === "visible") this.go();
  }

  go() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.act();
  }
}
