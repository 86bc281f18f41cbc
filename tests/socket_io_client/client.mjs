// One socket.io-client that a test drives: a JSON object a line, commands on stdin and what happens on stdout.
// It behaves as the web frontend of OpenHands does: by websocket unless told otherwise, and back with the last
// number it got.

import { createInterface } from "node:readline";
import { io } from "socket.io-client";

let socket = null;

const tell = (happened, members = {}) => process.stdout.write(`${JSON.stringify({ happened, ...members })}\n`);

const commands = {
  connect({ url, query, headers, transports }) {
    socket = io(url, { transports, query, extraHeaders: headers });
    socket.on("connect", () => tell("connected"));
    socket.on("connect_error", (error) => {
      // While it is active it tries again by itself: the server was not there, it refused nothing.
      if (!socket.active) tell("refused", { message: error.message, data: error.data });
    });
    socket.on("disconnect", (reason) => tell("disconnected", { reason }));
    socket.on("oh_event", (frame) => {
      if (Number.isInteger(frame.id)) socket.io.opts.query.latest_event_id = frame.id;
      tell("received", { frame });
    });
  },
  emit({ name, values }) {
    socket.emit(name, ...values);
  },
  ask({ name, values, number }) {
    socket.emit(name, ...values, (answer) => tell("acknowledged", { number, answer }));
  },
  break() {
    socket.io.engine.close();
  },
  disconnect() {
    socket.disconnect();
  },
};

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const { command, ...members } = JSON.parse(line);
    commands[command](members);
  })
  .on("close", () => process.exit());
