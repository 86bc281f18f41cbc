// One socket that repairs itself, and says truly how it stands. Where no WebSocket gets through it goes on over HTTP.

const QUIET_MS = 45_000; // the server sends a heartbeat every 20 s
const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 15_000;
const CHECK_MS = 5_000;
const GREETING_MS = 20_000; // a try that brings nothing for so long has failed
const TRIES = 2; // of the socket, before HTTP is tried as well

const FINAL = {
  4400: "this page's address is wrong",
  4401: "you are logged out",
  4404: "this conversation is gone",
};
const WHY = {
  1006: "the server can't be reached",
  1009: "a message was too long",
  1012: "the server is restarting",
  1013: "the server can't reach its data",
  4408: "this page couldn't keep up",
  4429: "you have reached a limit",
};

/** Whether a socket that closed so may have met something on the way: the server would have said more. */
const isUnexplained = (code) => code < 4000 && !(code in WHY && code !== 1006);

/**
 * Keeps a connection to `address()`, which is asked for anew each time, since it names a cursor.
 * `overHttp(wire)` makes what takes its place where WebSockets are blocked, of the module that has it.
 * `onState` hears of {name, since, why, nextTry, isBlocked}: connecting, open, waiting, offline or ended.
 */
export class LiveSocket {
  constructor({ address, overHttp, onFrame, onState }) {
    Object.assign(this, { address, overHttp, onFrame, onState });
    this.failures = 0; // tries in a row that ended before a greeting, for no reason that the server gave
    this.isBlocked = false; // HTTP works where the socket does not
    this.state = { name: "connecting", since: Date.now() };
    this.wait = FIRST_WAIT_MS;
    this.heardAt = 0;
    addEventListener("online", () => this.hurry());
    addEventListener("offline", () => this.lose("you're offline"));
    addEventListener("pageshow", () => this.hurry());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.hurry());
    setInterval(() => this.check(), CHECK_MS);
    this.connect();
  }

  get isOpen() {
    return this.state.name === "open";
  }

  get isUploading() {
    return this.socket?.bufferedAmount > 0;
  }

  send(frame) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  async connect() {
    clearTimeout(this.timer);
    this.drop();
    this.become("connecting");
    this.heardAt = Date.now();
    const isHttp = this.isBlocked || (this.failures >= TRIES && this.failures % 2 === 0); // by turns while neither works
    const attempt = (this.attempt = {});
    const socket = await this.made(isHttp).catch(() => undefined);
    if (attempt !== this.attempt) return socket?.close();
    if (!socket) return this.closed(1006, "", isHttp);
    this.socket = socket;
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.heardAt = Date.now();
      const frame = JSON.parse(data);
      if (frame.type === "hello") this.opened(isHttp);
      this.onFrame(frame);
    };
    socket.onclose = ({ code, reason }) => socket === this.socket && this.closed(code, reason, isHttp);
  }

  async made(isHttp) {
    if (!isHttp) return new WebSocket(this.url);
    return this.overHttp(await import("./http_wire.js"));
  }

  get url() {
    const url = new URL(this.address(), location.href);
    url.protocol = url.protocol.replace("http", "ws");
    return url;
  }

  opened(isHttp) {
    this.wait = FIRST_WAIT_MS;
    this.lostAt = undefined;
    if (isHttp) this.socket.probe(this);
    else [this.failures, this.isBlocked] = [0, false];
    this.become("open", { isBlocked: this.isBlocked });
  }

  closed(code, reason, isHttp) {
    this.socket = undefined;
    if (this.state.name !== "open") {
      if (isHttp) this.isBlocked = false;
      if (isUnexplained(code)) this.failures += 1;
    }
    if (code in FINAL) this.become("ended", { code, why: reason || FINAL[code] });
    else this.retryLater(WHY[code] ?? reason, code);
  }

  retryLater(why, code) {
    this.lostAt ??= Date.now();
    const wait = this.wait * (0.75 + Math.random() / 2);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
    const name = navigator.onLine ? "waiting" : "offline";
    this.become(name, { code, why: why || "the connection was lost", nextTry: Date.now() + wait });
    this.timer = setTimeout(() => this.connect(), wait);
  }

  /** Take the connection as broken, whatever the browser thinks of it. */
  lose(why) {
    if (this.state.name === "ended" || this.state.name === "waiting") return;
    clearTimeout(this.timer);
    this.drop();
    this.retryLater(why);
  }

  /** Something is better now: do not wait. */
  hurry() {
    const { name } = this.state;
    this.wait = FIRST_WAIT_MS;
    if (name === "waiting" || name === "offline") this.connect();
    else if (name === "open" && this.isBlocked) this.socket.probe(this);
    else this.check();
  }

  /** A connection that is silent for long is lost: sleep and a changed network tell nobody. */
  check() {
    const { name } = this.state;
    const silence = Date.now() - this.heardAt;
    if (name === "open" && silence > (this.socket?.quietMs ?? QUIET_MS)) this.lose("the server stopped responding");
    if (name === "connecting" && silence > (this.socket?.quietMs ?? GREETING_MS)) {
      this.failures += 1;
      this.lose("the server doesn't respond");
    }
  }

  drop() {
    const socket = this.socket;
    this.socket = this.attempt = undefined;
    if (socket) {
      socket.onclose = socket.onmessage = null;
      socket.close();
    }
  }

  become(name, more = {}) {
    this.state = { name, since: this.lostAt ?? Date.now(), ...more };
    this.onState(this.state);
  }
}
