"""A proxy without memory: each request goes to the next of several servers, and so does each WebSocket."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

CHUNK = 64 * 1024
HEAD_END = b"\r\n\r\n"
HEAD_MAX_BYTES = 256 * 1024
_CONNECTION = re.compile(rb"\r\nconnection:[^\r]*", re.IGNORECASE)
_IS_UPGRADE = re.compile(rb"\r\nupgrade: *websocket", re.IGNORECASE)


class AlternatingProxy:
    """Listens on a port of loopback from its creation until `close`."""

    def __init__(self, port: int, targets: Sequence[int]) -> None:
        self._targets = targets
        self._number = count()
        self._is_closed = False
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that there are end with their servers."""
        self._is_closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which ends the wait for the next one
        self._listener.close()

    def _serve(self) -> None:
        while not self._is_closed:
            with suppress(OSError):
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        """Pass one request on, and close the connection after its answer, so that the next one comes anew."""
        with suppress(OSError), client:
            head, rest = _head_of(client)
            if not head:
                return
            if not _IS_UPGRADE.search(head):
                head = _CONNECTION.sub(b"", head) + b"\r\nConnection: close"
            port = self._targets[next(self._number) % len(self._targets)]
            with socket.create_connection(("127.0.0.1", port)) as server:
                server.sendall(head + HEAD_END + rest)
                answering = threading.Thread(target=_copy, args=(server, client), daemon=True)
                answering.start()
                _copy(client, server)
                answering.join()


def _head_of(client: socket.socket) -> tuple[bytes, bytes]:
    """Return the head of a request without the empty line, and what has come after it."""
    read = b""
    while HEAD_END not in read and len(read) < HEAD_MAX_BYTES:
        data = client.recv(CHUNK)
        if not data:
            return b"", b""
        read += data
    head, _, rest = read.partition(HEAD_END)
    return head, rest


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    with suppress(OSError):  # whoever reads there is told, and what it still says arrives
        target.shutdown(socket.SHUT_WR)
