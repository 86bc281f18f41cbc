"""Clients at the far end of a real connection; they block, so a test may use the database beside them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect
from websockets.uri import parse_uri

from tests.support.people.clients import WAIT_S, Server, SocketClosed

ABNORMAL = 1006
_MASKED_CONNECT = b"\x81\x82\0\0\0\0" + b"40"
"""A frame with the packet by which a Socket.IO client joins."""


def wait_until(condition: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
    """Return once the condition holds. Raise TimeoutError if it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("What was waited for did not happen.")
        time.sleep(0.02)


def address(server: Server, conversation_id: str, *, after: int = -1) -> str:
    """Return the address of a conversation's native socket; what begins with a slash is one already."""
    if conversation_id.startswith("/"):
        return f"{server.ws_url}{conversation_id}"
    return f"{server.ws_url}/ws/conversations/{conversation_id}?after={after}"


class NetworkClient:
    """One socket to a server in another process: a conversation's native one, or one at any address."""

    def __init__(self, server: Server, conversation_id: str, *, after: int = -1) -> None:
        """Connect. Raise SocketClosed if nobody answers."""
        self.frames: list[dict[str, Any]] = []
        self._until_left = ExitStack()
        try:
            self._connection = self._until_left.enter_context(
                connect(
                    address(server, conversation_id, after=after),
                    proxy=None,
                    compression=None,
                    max_size=None,
                    open_timeout=WAIT_S,
                    close_timeout=1,
                )
            )
        except (OSError, EOFError, WebSocketException) as error:
            raise SocketClosed(ABNORMAL, str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def leave(self) -> None:
        self._until_left.close()

    def send(self, frame: dict[str, Any] | str) -> None:
        """Send one frame, as JSON unless it is text. Raise SocketClosed."""
        try:
            self._connection.send(frame if isinstance(frame, str) else json.dumps(frame))
        except ConnectionClosed as closed:
            raise _closed(closed) from closed

    def receive_text(self, *, within_s: float = WAIT_S) -> str:
        """Return the next frame's text. Raise SocketClosed or TimeoutError."""
        try:
            text = self._connection.recv(timeout=within_s)
        except ConnectionClosed as closed:
            raise _closed(closed) from closed
        assert isinstance(text, str)
        return text

    def receive(self, *, within_s: float = WAIT_S) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self.receive_text(within_s=within_s))
        self.frames.append(frame)
        return frame

    def until(self, type: str, **members: Any) -> dict[str, Any]:
        """Return the next frame of this type with these members; the others are kept in `frames`."""
        deadline = time.monotonic() + WAIT_S
        while True:
            frame = self.receive(within_s=max(0.0, deadline - time.monotonic()))
            if frame["type"] == type and members.items() <= frame.items():
                return frame

    def closed(self) -> SocketClosed:
        """Return how the server closes the socket, passing over frames before that."""
        while True:
            try:
                self.receive()
            except SocketClosed as closed:
                return closed


def _closed(closed: ConnectionClosed) -> SocketClosed:
    if closed.rcvd is None:
        return SocketClosed(ABNORMAL, "")
    return SocketClosed(closed.rcvd.code, closed.rcvd.reason)


class StalledClient:
    """A client that shakes hands and then reads nothing until it is told to."""

    def __init__(self, server: Server, conversation_id: str, *, after: int = -1) -> None:
        url = address(server, conversation_id, after=after)
        self._protocol = ClientProtocol(parse_uri(url), max_size=None)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._socket.settimeout(WAIT_S)
        self._socket.connect(("127.0.0.1", urlsplit(url).port))
        self._protocol.send_request(self._protocol.connect())
        for part in self._protocol.data_to_send():
            self._socket.sendall(part)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def join_v0(self) -> None:
        """Join by Socket.IO, once its transport is open."""
        received = b""
        while b'"pingInterval"' not in received:
            received += self._socket.recv(64 * 1024)
        self._socket.sendall(_MASKED_CONNECT)

    def read_the_rest(self) -> tuple[list[dict[str, Any]], SocketClosed]:
        """Read all that there is; return the frames, and how the server closed."""
        frames: list[dict[str, Any]] = []
        text = b""
        while self._protocol.close_rcvd is None:
            received = self._socket.recv(1024 * 1024)
            if not received:
                return frames, SocketClosed(ABNORMAL, "")
            self._protocol.receive_data(received)
            for event in self._protocol.events_received():
                if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                    text = bytes(event.data)
                    frames.append(json.loads(text))
        closed = self._protocol.close_rcvd
        return frames, SocketClosed(closed.code, closed.reason)
