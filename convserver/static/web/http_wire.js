// The frames of a socket over HTTP, for networks that let no WebSocket through: a stream of server-sent events, or
// polls where a stream is kept back, too, and in a hidden tab, since a browser has few connections.

import { csrf } from "./csrf.js";

const GREETING_MS = 8_000; // a stream that brings nothing for so long is kept back on its way
const POLL_MS = 3_000;
const HIDDEN_POLL_MS = 30_000;
const POLLED_MS = 20_000;
const ANSWER_MS = 60_000; // a message may be long, and the line slow
const CLOSE_CODES = { 400: 4400, 401: 4401, 404: 4404, 429: 4429, 503: 1013 };
const LOST = 1006;
const PROBE_MS = 15_000; // so long after it was found blocked the socket is tried again
const LONGEST_PROBE_MS = 120_000;
const OVER = new Set([1000, 1012]); // ends after which the next request brings the rest

/** Has the members of a WebSocket that a page uses; `address()` names the cursor of the stream, `requestOf` what carries a frame. */
export class HttpWire {
  constructor({ address, requestOf, isPolling = false }) {
    Object.assign(this, { address, requestOf, isPolling });
    this.probeMs = PROBE_MS;
    this.quietMs = 5 * HIDDEN_POLL_MS; // a browser lets the timers of hidden tabs wait
    this.bufferedAmount = 0;
    this.readyState = WebSocket.CONNECTING;
    this.look = () => this.ask();
    document.addEventListener("visibilitychange", this.look);
    queueMicrotask(this.look); // its maker listens by then
  }

  close() {
    this.readyState = WebSocket.CLOSED;
    document.removeEventListener("visibilitychange", this.look);
    this.probing?.end();
    this.stop();
  }

  stop() {
    clearTimeout(this.timer);
    this.request?.abort();
  }

  get polls() {
    return this.isPolling || document.visibilityState !== "visible";
  }

  /** Ask for what follows the cursor, by one request at a time. */
  async ask() {
    if (this.readyState === WebSocket.CLOSED) return;
    this.stop();
    const request = (this.request = new AbortController());
    try {
      const end = await (this.polls ? this.poll(request) : this.follow(request));
      if (request !== this.request || this.readyState === WebSocket.CLOSED) return;
      if (end && !OVER.has(end.code)) return this.lost(end.code, end.detail);
      this.timer = setTimeout(() => this.ask(), this.polls ? this.restMs : 0);
    } catch (problem) {
      if (request !== this.request || this.readyState === WebSocket.CLOSED) return;
      if (!request.isKeptBack) return this.lost(problem.code ?? LOST, problem.code && problem.message);
      this.isPolling = true;
      this.ask();
    }
  }

  get restMs() {
    return document.visibilityState === "visible" ? POLL_MS : HIDDEN_POLL_MS;
  }

  /** Hand over frames as they come; return the last one, which says why the stream ends. */
  async follow(request) {
    const greeting = setTimeout(() => {
      request.isKeptBack = true;
      request.abort();
    }, GREETING_MS);
    let end;
    try {
      const answer = await this.fetch(request);
      let rest = "";
      for (const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(); ; ) {
        const { value, done } = await reader.read();
        if (done) return end;
        clearTimeout(greeting);
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const frame of events.flatMap(frameOf)) end = this.heard(frame, request);
      }
    } finally {
      clearTimeout(greeting);
    }
  }

  async poll(request) {
    const silence = setTimeout(() => request.abort(), POLLED_MS);
    try {
      const answer = await this.fetch(request, "&follow=false");
      let end;
      for (const frame of (await answer.text()).split("\n\n").flatMap(frameOf)) end = this.heard(frame, request);
      return end;
    } finally {
      clearTimeout(silence);
    }
  }

  async fetch({ signal }, more = "") {
    const answer = await fetch(`${this.address()}${more}`, { headers: { Accept: "text/event-stream" }, signal });
    if (answer.ok && !answer.redirected) return answer;
    const { detail = `The server answered ${answer.status}` } = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(detail), { code: CLOSE_CODES[answer.status] ?? LOST });
  }

  /** Pass a frame on; the greetings after the first only bring what has changed meanwhile. */
  heard(frame, request) {
    if (request !== this.request) return undefined;
    if (frame.type === "end") return frame;
    const isGreeted = this.readyState === WebSocket.OPEN;
    if (frame.type === "hello" && isGreeted) frame = changesIn(frame);
    if (frame.type === "replay_complete" && this.isReplayed) return undefined;
    this.isReplayed ||= frame.type === "replay_complete";
    if (!isGreeted) this.readyState = WebSocket.OPEN;
    this.bring(frame);
    return undefined;
  }

  /** Try whether a WebSocket gets through by now, for the live socket that this one serves meanwhile. */
  probe(live) {
    this.probing?.end();
    const socket = new WebSocket(live.url);
    const found = (isThrough) => {
      probing.end();
      if (isThrough) {
        [live.failures, live.isBlocked] = [0, false];
        return live.connect();
      }
      probing.timer = setTimeout(() => this.probe(live), this.probeMs);
      this.probeMs = Math.min(2 * this.probeMs, LONGEST_PROBE_MS);
      if (!live.isBlocked) live.become("open", { isBlocked: (live.isBlocked = true) });
    };
    const probing = (this.probing = {
      timer: setTimeout(() => found(false), GREETING_MS),
      end() {
        clearTimeout(this.timer);
        socket.onmessage = socket.onclose = null;
        socket.close();
      },
    });
    socket.onmessage = () => found(true);
    socket.onclose = () => found(false);
  }

  bring(frame) {
    if (this.readyState === WebSocket.OPEN) this.onmessage?.({ data: JSON.stringify(frame) });
  }

  lost(code, reason = "") {
    this.close();
    this.onclose?.({ code, reason });
  }

  /** Carry a frame by a request; its answer comes as a frame. */
  async send(text) {
    const frame = JSON.parse(text);
    this.bufferedAmount += text.length;
    const answer = await this.carry(frame).catch(() => ({ type: "error", code: "unavailable", detail: "The server can't be reached right now." }));
    this.bufferedAmount -= text.length;
    this.bring({ ...answer, id: frame.id });
    if (this.polls) this.ask(); // what comes of it is looked for at once
  }

  async carry(frame) {
    const { method, address, body } = this.requestOf(frame);
    const headers = { "Content-Type": "application/json", "X-CSRFToken": csrf() };
    const answer = await fetch(address, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(ANSWER_MS) });
    const { seq, status, code, detail } = await answer.json();
    if (answer.ok) return { type: "ack", seq, status };
    return { type: "error", code: code ?? "unavailable", detail: detail ?? `The server answered ${answer.status}.` };
  }
}

/** The frame of a server-sent event: none of one without data. */
function frameOf(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data: "));
  return lines.length ? [JSON.parse(lines.map((line) => line.slice(6)).join("\n"))] : [];
}

const changesIn = ({ type, conversation, loop, ...others }) => (conversation ? { type: "conversation", changes: { title: conversation.title, loop } } : { ...others, type: "heartbeat" });

/** What carries the frames of a conversation. */
export const requestsOf = (id) => (frame) => {
  const conversation = `/api/native/conversations/${encodeURIComponent(id)}`;
  const { type, id: _, through, ...more } = frame;
  if (type === "seen") return { method: "PATCH", address: conversation, body: { seen_through: through } };
  if (type === "message") return { method: "POST", address: `${conversation}/events`, body: frame };
  return { method: "POST", address: `${conversation}/${type}`, body: type === "confirm" ? more : undefined };
};
