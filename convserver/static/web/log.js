// The stretch of the log that is in the page: it grows at either end, and is trimmed at the other.

const EVENTS_MAX = 200; // articles in the page, however long the log is
const NEAR_PX = 600; // so near an end the next stretch is fetched
const END_PX = 80; // so near the end the page follows it
const GAP_MAX = 150; // who missed more than this begins again at the end
const ANSWER_MS = 30_000; // a line may be dead without a word
const FIRST_RETRY_MS = 2_000; // an end that is looked at is fetched again; perhaps nothing else comes
const LONGEST_RETRY_MS = 60_000;
const CALLS = ".tool_call, .tool_result, .plan, .error, .output, .code, .attached";

export class Log {
  constructor(root, { onShown }) {
    this.scroller = root.querySelector("#log");
    this.events = root.querySelector("#events");
    this.older = root.querySelector(".edge.older");
    this.newer = root.querySelector(".edge.newer");
    this.toEnd = root.querySelector("#to-end");
    this.tail = root.querySelectorAll("#answers, #message-queue");
    this.address = root.dataset.events;
    this.onShown = onShown;
    this.first = Number(root.dataset.first);
    this.last = Number(root.dataset.last);
    this.end = Number(root.dataset.lastSeq);
    this.isFollowing = true;
    this.top = 0;
    this.busy = Promise.resolve();
    this.retryMs = FIRST_RETRY_MS;
    if (this.events.querySelector(CALLS)) this.showCalls().catch(console.warn);
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    addEventListener("hashchange", () => this.goTo(marked()));
    const resizes = new ResizeObserver(() => this.isFollowing && this.isWhole && this.scrollToEnd());
    for (const each of [this.events, this.scroller]) resizes.observe(each);
    for (const name of ["older", "newer"]) {
      this[name].querySelector("a").addEventListener("click", (click) => {
        click.preventDefault();
        name === "older" ? this.growUp() : this.growDown();
      });
    }
    this.toEnd.addEventListener("click", () => this.goToEnd());
  }

  /** Whether the end of the log is in the page. */
  get isWhole() {
    return this.last >= this.end;
  }

  /** Show where the address points, else the end. */
  begin() {
    this.isFollowing = this.isWhole;
    if (marked() !== undefined) this.goTo(marked());
    else if (this.isWhole) this.scrollToEnd();
    this.growUp(); // where little is shown of many events nobody can scroll to more
    this.mark();
  }

  /** Show one event; where people are shown nothing of it, what is before it. */
  goTo(seq) {
    if (seq === undefined) return;
    this.isFollowing = false;
    this.oneByOne(async () => {
      if (seq < this.first || seq > this.last) await this.replaceBy(`around=${seq}`);
      while (seq > this.last && !this.isWhole) await this.fetchAfter(); // what is before it was too large
      const there = document.getElementById(`e${seq}`) ?? this.articleBefore(seq);
      const found = this.calls?.shownBy(there) ?? there;
      for (const other of this.events.querySelectorAll(".marked")) other.classList.remove("marked");
      found?.scrollIntoView({ block: "center" });
      found?.classList.add("marked");
      this.mark();
    });
  }

  articleBefore(seq) {
    return [...this.events.querySelectorAll("article")].findLast((article) => Number(article.dataset.seq) <= seq);
  }

  /** Hear that the log goes on to `seq`, and show it if its end is being looked at. */
  heard(seq) {
    this.end = Math.max(this.end, seq);
    if (this.isFollowing) this.catchUp();
    else this.growDown();
    this.mark();
  }

  catchUp() {
    return this.oneByOne(async () => {
      while (this.isFollowing && !this.isWhole) {
        if (this.end - this.last > GAP_MAX) await this.replaceBy("");
        else await this.fetchAfter();
      }
    });
  }

  growUp() {
    return this.oneByOne(async () => {
      while (this.first > 0 && this.scroller.scrollTop < NEAR_PX) await this.fetchBefore();
    });
  }

  growDown() {
    return this.oneByOne(async () => {
      while (!this.isWhole && this.isNearEnd(NEAR_PX)) await this.fetchAfter();
    });
  }

  async fetchBefore() {
    const stretch = await this.fetch(`before=${this.first}`);
    this.keepingPlace(() => {
      this.events.prepend(stretch);
      this.first = Number(stretch.dataset.first);
      this.pair();
      while (this.count > EVENTS_MAX && this.events.children.length > 1) this.dropLast();
      this.mark();
    });
  }

  async fetchAfter() {
    const stretch = await this.fetch(`after=${this.last}`);
    const last = Number(stretch.dataset.last);
    if (last <= this.last) {
      this.end = this.last; // an end that was told of is not there: what the log says counts
      return;
    }
    const isPinned = this.isFollowing;
    this.keepingPlace(() => {
      this.append(stretch);
      this.last = last;
      this.pair();
      while (this.count > EVENTS_MAX && this.events.children.length > 1) this.dropFirst();
      this.onShown(stretch.shown);
      this.mark();
    });
    if (isPinned) this.scrollToEnd();
  }

  /** Put another stretch in place of all that is shown: without a query the end of the log. */
  async replaceBy(query) {
    const stretch = await this.fetch(query);
    this.events.replaceChildren(stretch);
    this.first = Number(stretch.dataset.first);
    this.last = Number(stretch.dataset.last);
    this.pair();
    this.onShown(stretch.shown);
    if (this.isFollowing) this.scrollToEnd();
    this.mark();
  }

  /** Show an event that is in the page as the server shows it now. */
  refresh(seq) {
    return this.oneByOne(async () => {
      const stretch = await this.fetch(`after=${seq - 1}`);
      const [there, here] = [stretch, document].map((place) => place.querySelector(`article[id="e${seq}"]`));
      if (!there || !here) return;
      const isPinned = this.isFollowing;
      this.keepingPlace(() => here.replaceWith(there));
      this.pair();
      if (isPinned) this.scrollToEnd();
    });
  }

  goToEnd() {
    this.isFollowing = true;
    if (this.isWhole) this.scrollToEnd();
    else this.catchUp();
    this.mark();
  }

  async fetch(query) {
    const answer = await fetch(`${this.address}?${query}`, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok || answer.redirected) throw new Error(`The server answered ${answer.status}.`);
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    const stretch = document.adoptNode(parsed.querySelector(".stretch"));
    this.end = Math.max(this.end, Number(stretch.dataset.lastSeq));
    this.retryMs = FIRST_RETRY_MS;
    stretch.shown = [...stretch.children];
    if (stretch.querySelector(CALLS)) await this.showCalls();
    return stretch;
  }

  /** Have what shows calls, code and output, which a log of short messages goes without. */
  showCalls() {
    this.showingCalls ??= import("./calls.js").then(async (calls) => {
      await calls.styled();
      this.calls = calls;
    });
    this.showingCalls.catch(() => (this.showingCalls = undefined));
    return this.showingCalls;
  }

  pair() {
    for (const seq of this.calls?.pair(this.events) ?? []) this.refresh(seq);
  }

  /** One fetch at a time; the next scroll, frame, click or tick tries a failed one again. */
  oneByOne(step) {
    const next = this.busy.then(step).catch((problem) => {
      console.warn("events were not fetched:", problem);
      this.retryLater();
    });
    this.busy = next;
    return next;
  }

  retryLater() {
    clearTimeout(this.retrying);
    this.retrying = setTimeout(() => this.isFollowing && !this.isWhole && this.catchUp(), this.retryMs);
    this.retryMs = Math.min(2 * this.retryMs, LONGEST_RETRY_MS);
  }

  append(stretch) {
    const last = this.events.lastElementChild;
    const room = 50 - (last?.children.length ?? 50);
    if (last && stretch.children.length <= room) {
      last.append(...stretch.children);
      last.dataset.last = stretch.dataset.last;
    } else this.events.append(stretch);
  }

  dropFirst() {
    const [dropped, next] = this.events.children;
    this.calls?.leave(dropped, next);
    dropped.remove();
    this.first = Number(next.dataset.first);
  }

  dropLast() {
    this.events.lastElementChild.remove();
    this.last = Number(this.events.lastElementChild.dataset.last);
    this.isFollowing = false;
  }

  get count() {
    return this.events.querySelectorAll("article").length;
  }

  /** Change what is in the page without moving what is looked at. */
  keepingPlace(change) {
    const top = this.scroller.getBoundingClientRect().top;
    const anchor = [...this.events.querySelectorAll("article")].find(
      (article) => article.getBoundingClientRect().bottom > top,
    );
    const before = anchor?.getBoundingClientRect().top;
    change();
    if (anchor?.isConnected) this.scroller.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  scrolled() {
    const { scrollTop } = this.scroller;
    // Only going up ends the following: not what comes, nor what grows meanwhile.
    if (this.isNearEnd(END_PX)) this.isFollowing ||= this.isWhole;
    else if (scrollTop < this.top) this.isFollowing = false;
    this.top = scrollTop;
    if (scrollTop < NEAR_PX && this.first > 0) this.growUp();
    if (this.isNearEnd(NEAR_PX) && !this.isWhole) this.growDown();
    this.mark();
  }

  isNearEnd(px) {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < px;
  }

  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.top = this.scroller.scrollTop;
  }

  /** Say what is not in the page. */
  mark() {
    this.older.hidden = this.first <= 0;
    this.newer.hidden = this.isWhole || this.isFollowing; // what is followed is being fetched
    this.older.querySelector("a").href = `?before=${this.first}`;
    this.newer.querySelector("a").href = `?after=${this.last}`;
    const missing = this.end - this.last;
    const isAway = !this.isFollowing && !(this.isWhole && this.isNearEnd(END_PX));
    this.toEnd.hidden = !isAway;
    for (const each of this.tail) each.hidden = isAway && !this.isWhole; // else it would follow the wrong event
    this.toEnd.querySelector("span").textContent = missing > 0 ? `Newest (${missing} more)` : "Newest";
  }
}

/** The number of the event that the address points at, if it does. */
const marked = () => (/^#e\d+$/.test(location.hash) ? Number(location.hash.slice(2)) : undefined);
