"""A receiver of webhooks on loopback: it records what it is sent, and has the faults that one can have."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Call(NamedTuple):
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    text: str
    """The body as it was sent."""
    status: int
    """What is answered; 0 for nothing."""

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


class WebhookServer:
    """One receiver in a thread; used as a context, which it serves in."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.status = 200
        self._silent = threading.Event()
        self._go = threading.Event()
        self._go.set()
        self._stopped = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _Handler, self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._go.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        if self._http.errors:
            raise self._http.errors[0]

    @property
    def url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def next_status(self) -> int:
        """Return what the next call is answered."""
        return 0 if self._silent.is_set() else self.status

    @property
    def taken(self) -> list[Call]:
        """Return the calls that it said yes to."""
        return [call for call in self.calls if call.status == 200]

    @property
    def batches(self) -> list[list[Any]]:
        """Return the batches of events that it took."""
        return [call.body for call in self.taken if call.path.startswith("/events/")]

    @property
    def infos(self) -> list[Any]:
        """Return the conversations' information that it took."""
        return [call.body for call in self.taken if call.path == "/conversations"]

    def never_answer(self) -> None:
        """Take requests and stay silent."""
        self._silent.set()

    def hold(self) -> None:
        """Keep every request waiting for its answer until `let_go`."""
        self._go.clear()

    def let_go(self) -> None:
        """Answer what is held, and answer again from now on."""
        self._silent.clear()
        self._go.set()

    def respond(self, handler: _Handler, call: Call) -> None:
        """Record a request and answer it."""
        self.calls.append(call)
        self._go.wait()
        if not call.status:
            self._stopped.wait()
            return
        with suppress(ConnectionError):
            handler.send_response(call.status)
            handler.send_header("Content-Length", "0")
            handler.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for them

    def __init__(self, address: tuple[str, int], handler: type[_Handler], receiver: WebhookServer) -> None:
        super().__init__(address, handler)
        self.receiver = receiver
        self.errors: list[BaseException] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep what went wrong for the end, except that the sender had gone."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        text = self.rfile.read(length).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        receiver = self.server.receiver
        receiver.respond(self, Call(self.path, headers, text, receiver.next_status))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
