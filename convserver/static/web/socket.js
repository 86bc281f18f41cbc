// One socket that repairs itself, and says truly how it stands.

const QUIET_MS = 45_000; // the server sends a heartbeat every 20 s
const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 15_000;
const CHECK_MS = 5_000;

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

/**
 * Keeps a connection to `address()`, which is asked for anew each time, since it names a cursor.
 * `onState` hears of {name, since, why, nextTry}: connecting, open, waiting, offline or ended.
 */
export class LiveSocket {
  constructor({ address, onFrame, onState }) {
    Object.assign(this, { address, onFrame, onState });
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

  connect() {
    clearTimeout(this.timer);
    this.drop();
    this.become("connecting");
    const url = new URL(this.address(), location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    this.socket = socket;
    this.heardAt = Date.now();
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.heardAt = Date.now();
      const frame = JSON.parse(data);
      if (frame.type === "hello") this.opened();
      this.onFrame(frame);
    };
    socket.onclose = ({ code, reason }) => socket === this.socket && this.closed(code, reason);
  }

  opened() {
    this.wait = FIRST_WAIT_MS;
    this.lostAt = undefined;
    this.become("open");
  }

  closed(code, reason) {
    this.socket = undefined;
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
    else this.check();
  }

  /** A connection that is silent for long is lost: sleep and a changed network tell nobody. */
  check() {
    const { name } = this.state;
    const isStale = Date.now() - this.heardAt > QUIET_MS;
    if (isStale && (name === "open" || name === "connecting")) this.lose("the server stopped responding");
  }

  drop() {
    const socket = this.socket;
    this.socket = undefined;
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
