// The server's clock: what this machine's is wrong by is left out of how long something takes.

let aheadMs = 0;

/** Note what the server's clock says at this moment, as ISO text. */
export function setServerTime(now) {
  aheadMs = Date.parse(now) - Date.now();
}

/** The server's time in milliseconds since 1970. */
export const serverNow = () => Date.now() + aheadMs;
