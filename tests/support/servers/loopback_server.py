"""An HTTP server on loopback, in a thread: the ground that servers of tests stand on."""

from __future__ import annotations

import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class LoopbackServer(ABC):
    """One server; used as a context, which it serves in. What goes wrong in it is raised at the end."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        """Set at the end, for requests that are kept waiting."""
        self._http = _HTTPServer(("127.0.0.1", 0), Request)
        self._http.owner = self
        # Polled often, since stopping waits for the next poll.
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
        self.stopped.set()
        self._http.shutdown()
        self._thread.join()
        self._http.expect_nothing()
        self._http.server_close()
        if self._http.errors:
            raise self._http.errors[0]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @abstractmethod
    def take(self, request: Request) -> None:
        """Answer a request; each comes in a thread of its own."""


class Request(BaseHTTPRequestHandler):
    """A request that came, and the way back."""

    server: _HTTPServer

    def do_GET(self) -> None:
        self.server.owner.take(self)

    def do_POST(self) -> None:
        self.server.owner.take(self)

    def header_values(self) -> dict[str, str]:
        """Return the headers by their names in small letters."""
        return {name.lower(): value for name, value in self.headers.items()}

    def read(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, status: int, content: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer, unless nobody waits for it any more."""
        with suppress(ConnectionError):
            self.start(status, {"Content-Length": str(len(content)), **(headers or {})})
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for them
    request_queue_size = 128  # a connection beyond it would try again only after a second

    owner: LoopbackServer

    def __init__(self, address: tuple[str, int], handler: type[Request]) -> None:
        super().__init__(address, handler)
        self.errors: list[BaseException] = []
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, and remember it while it is open."""
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def expect_nothing(self) -> None:
        """Read no further from clients: one who has connected and sends nothing would be waited for."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep what went wrong for the end, except that a client had gone."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.errors.append(error)
