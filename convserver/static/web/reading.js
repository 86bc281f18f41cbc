// Which of the calls that wait for approval were read to their end: no other can be approved.

const WAITING = "article.tool_call:has(> header .state.waiting):not(:has(> .results > *))";

export class Reading {
  constructor(events, { onChange }) {
    this.events = events;
    this.read = new WeakSet();
    this.seen = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) this.note(target);
      onChange();
    });
    new MutationObserver(() => this.watch()).observe(events, { childList: true, subtree: true });
    this.watch();
  }

  watch() {
    for (const end of this.events.querySelectorAll(".subject.whole .end")) if (!this.read.has(end)) this.seen.observe(end);
  }

  note(end) {
    this.read.add(end);
    this.seen.unobserve(end);
  }

  /** Say why `call`, and whatever else waits with it, cannot be approved now; nothing when it can. */
  obstacle(call) {
    const calls = new Set([...this.events.querySelectorAll(WAITING), ...(call ? [call] : [])]);
    const reasons = [...calls].map((each) => this.obstacleOf(each));
    return reasons.find((why) => why) ?? "";
  }

  obstacleOf(call) {
    const subject = call.querySelector(":scope > .subject");
    if (!subject) return "The call is not shown yet.";
    if (!subject.matches(".whole")) return "This call cannot be shown whole, so it cannot be approved here.";
    return this.read.has(subject.querySelector(".end")) ? "" : "Scroll to the end of the call to approve it.";
  }

  /** Bring what is to be read before the eyes, and let the keys scroll it. */
  show(call) {
    call.scrollIntoView({ block: "nearest" });
    call.querySelector(".subject .reading")?.focus({ preventScroll: true });
  }
}
