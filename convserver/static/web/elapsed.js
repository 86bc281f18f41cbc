// How long the turn and its tool have been running; for eyes only, since it changes each second.

import { duration } from "./durations.js";
import { serverNow } from "./clock.js";

const TICK_MS = 1000;
const CALL = "#events article.tool_call";

export class Elapsed {
  /** `since` returns when the turn has begun, in milliseconds of the server's clock; nothing while none is played. */
  constructor(root, { since }) {
    this.root = root;
    this.since = since;
    this.place = root.querySelector("#agent-state .elapsed");
    setInterval(() => this.show(), TICK_MS);
  }

  show() {
    const since = this.since();
    this.place.textContent = since === undefined ? "" : duration(serverNow() - since);
    for (const call of this.root.querySelectorAll(CALL)) this.showOfCall(call, since !== undefined);
  }

  showOfCall(call, isWorking) {
    const header = call.querySelector(":scope > header");
    const [result] = call.querySelectorAll(":scope > .results > .result");
    const isRunning = isWorking && !result && Boolean(header.querySelector(".state.running"));
    const shown = header.querySelector(".elapsed");
    if (!isRunning && !shown) return;
    const end = isRunning ? serverNow() : Date.parse(result?.article?.querySelector("time")?.dateTime);
    const words = Number.isNaN(end) ? "" : duration(end - Date.parse(header.querySelector("time")?.dateTime));
    (shown ?? added(header)).textContent = words;
  }
}

function added(header) {
  const box = document.createElement("span");
  box.className = "elapsed";
  box.setAttribute("aria-hidden", "true");
  header.querySelector(".state").after(box);
  return box;
}
