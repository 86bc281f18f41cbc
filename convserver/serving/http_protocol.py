"""HTTP/1.1 with bounds on what a client may send, and how slowly, before it is known.

The parser of uvicorn bounds neither the size of a head nor the time that a request takes to arrive.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import struct
import termios
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from conversations.server_log import log_refusal
from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from convserver.serving.connections import ConnectionPlace, Connections
from convserver.serving.websocket_protocol import BoundedWebSocket

HEAD_MAX_BYTES = 32 * 1024
HEAD_MAX_LINES = 100
# A head has come completely this long after its first byte.
HEAD_S = 15.0
# A body makes progress at least this often.
BODY_S = 60.0
# Less than this is no progress: a byte now and then would keep a connection for hours.
PROGRESS_BYTES = 1024
# A connection without a request is closed after this long; those of sockets have pings instead.
SILENT_S = 20.0
# After an early answer, the server still reads this much of the body; if it closed at once, the client
# could lose the answer.
DISCARDED_MAX_BYTES = 32 * 1024 * 1024
DISCARDED_S = 30.0
# An answer of which less than PROGRESS_BYTES are taken in this time is given up.
UNREAD_S = 60.0
PIPELINED_MAX = 32
"""At most this many requests of one connection wait behind the one that is being answered."""
RETRY_AFTER_S = 5

# What an unknown client reads: sentences that say nothing of the server or of other clients.
NO_REQUEST = "This is not a request in HTTP/1.1."
REPEATED = "The header {} is there more than once: send it once."
TOO_LARGE = f"The headers are too large: the limit is {HEAD_MAX_BYTES} bytes and {HEAD_MAX_LINES} lines."
TOO_SLOW = "The request took too long to arrive. Send it again."
TOO_MANY = "This address has too many open connections. Close some, then try again."
PIPELINED = f"Too many requests were sent at once: wait for answers after {PIPELINED_MAX}."

# Headers of one value. Of a repeated one some readers take the last, others join all of them.
SINGLE = frozenset(
    {
        b"host",
        b"authorization",
        b"x-session-api-key",
        b"origin",
        b"content-length",
        b"content-type",
        b"transfer-encoding",
        b"idempotency-key",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"upgrade",
    }
)


class State(ServerState):
    """What all protocols of one server share."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self.room = connections


class Stage(Enum):
    """What has come of the newest request."""

    SILENT = auto()
    HEAD = auto()
    BODY = auto()
    WHOLE = auto()
    DISCARDED = auto()  # the rest of a body that was answered before its end is coming


class RequestRefused(Exception):
    """The request is refused while it is being read."""

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


def unsent(connection: Any) -> int:
    """Return how many bytes of a socket the kernel has still to deliver; 0 where it does not say."""
    with suppress(OSError, AttributeError, ValueError):  # of another system, closed, or no socket at all
        return int(struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    return 0


class BoundedHttp(HttpToolsProtocol):
    """One HTTP connection."""

    def __init__(self, config: uvicorn.Config, server_state: State, **others: Any) -> None:
        super().__init__(config, server_state, **others)
        self._room = server_state.room
        self._place: ConnectionPlace | None = None
        self._stage = Stage.SILENT
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._unread_bytes = 0  # what the client had not read of its answers when the timer was started
        self._refusal: RequestRefused | None = None  # why the parser was made to stop
        self._is_upgraded = False
        # Whether the part that is being read has ended a head, or brought some of a body or its end.
        self._has_moved = False
        # What has come of a head, or of the lines after a body, so far: the parser counts neither.
        self._unended_bytes = 0
        self._body_bytes = 0
        self._progress_at = 0.0
        self._progress_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or refuse a client whose address has too many."""
        super().connection_made(transport)
        self._place = self._room.enter(self._address, self._give_way)
        if self._place is None:
            self._refuse(RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, "too_many_connections", TOO_MANY))
        else:
            self._enter(Stage.SILENT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_unread_timer()
        if self._place is not None:
            self._room.leave(self._place)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for a client that does not read its answer, at most UNREAD_S."""
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        self._stop_unread_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Read it in parts that bring no more of a head than may come."""
        start = 0
        while start < len(data) and not self.transport.is_closing():
            if self.parser is None or self._is_upgraded:
                break
            # Lines are kept as they are parsed: a part brings no more of a head than may still come.
            end = start + HEAD_MAX_BYTES - self._unended_bytes
            self._read(data if start == 0 and end >= len(data) else data[start:end])
            start = end

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, and its place with it."""
        self._stop_timer()
        self._stop_unread_timer()
        if self._place is not None:
            self._room.work(self._place)
            self._place.evict = None  # a socket does not give way; pings end a silent one
        place, self._place = self._place, None
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        if place is not None and isinstance(socket, BoundedWebSocket):
            socket.keep(self._room, place)
        self._is_upgraded = True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a line of the head, or one after a body."""
        if len(self.headers) >= HEAD_MAX_LINES:
            self._refusal = _too_large()
            raise self._refusal
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let the request be answered, while its body still comes."""
        self._has_moved = True
        if len(self.pipeline) >= PIPELINED_MAX:
            self._refusal = RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, "too_many_requests", PIPELINED)
            raise self._refusal
        if repeated := _repeated(self.headers):
            self._refusal = RequestRefused(HTTPStatus.BAD_REQUEST, "bad_request", REPEATED.format(repeated))
            raise self._refusal
        self._enter(Stage.BODY)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_moved = True
        self._body_bytes += len(body)
        if self._body_bytes >= self._progress_bytes + PROGRESS_BYTES:
            self._progress_bytes, self._progress_at = self._body_bytes, self.loop.time()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request has come as a whole."""
        self._has_moved = True
        super().on_message_complete()
        is_answered = self.cycle is not None and self.cycle.response_complete
        self._enter(Stage.SILENT if is_answered else Stage.WHOLE)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        super().on_response_complete()
        if not self.cycle.response_complete:  # another one is being answered
            return
        if self._stage is Stage.WHOLE:
            self._enter(Stage.SILENT)
        elif self._stage is Stage.BODY:
            self._body_bytes = 0
            self._enter(Stage.DISCARDED)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _read(self, part: bytes) -> None:
        """Read a part of at most HEAD_MAX_BYTES, and look at what it has changed."""
        self._has_moved = False
        if self._stage is Stage.SILENT:
            self._enter(Stage.HEAD)
        self._unset_keepalive_if_required()  # as the inherited `data_received` does, whose place this takes
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserError:  # not by the inherited method, which logs without a bound
            self._refuse(self._refusal or RequestRefused(HTTPStatus.BAD_REQUEST, "bad_request", NO_REQUEST))
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
        if self.transport.is_closing() or self._is_upgraded:
            return
        self._unended_bytes = 0 if self._has_moved else self._unended_bytes + len(part)
        if self._unended_bytes >= HEAD_MAX_BYTES:
            self._refuse(_too_large())
        elif self._stage is Stage.DISCARDED:
            # A connection that is closed with unread bytes is reset, and the client may lose the answer.
            if self._body_bytes > DISCARDED_MAX_BYTES:
                self.transport.close()
        elif self._place is not None and self._stage in (Stage.HEAD, Stage.BODY):
            self._hold(self._place)

    def _hold(self, place: ConnectionPlace) -> None:
        """Note what this connection keeps in memory while its client is unknown."""
        if self._body_bytes > UNKNOWN_BODY_MAX_BYTES:
            self._room.work(place)  # only a known client's body is read further
        else:
            self._room.hold(place, self._unended_bytes + self._body_bytes)

    def _enter(self, stage: Stage) -> None:
        self._stop_timer()
        self._stage = stage
        if self._place is None:
            return
        if stage is Stage.WHOLE:
            self._room.work(self._place)
            return
        if stage in (Stage.SILENT, Stage.DISCARDED):
            self._room.work(self._place)
            self._room.wait(self._place)
        if stage is Stage.BODY:
            self._progress_bytes, self._progress_at = 0, self.loop.time()
        self._timer = self.loop.call_later(_PATIENCE_S[stage](), self._lose_patience)

    def _lose_patience(self) -> None:
        """End a connection on which too little has come."""
        self._timer = None
        if self.transport.is_closing():
            return
        if self._stage is Stage.BODY:
            # While it is the server that does not read, the client is not late.
            last_s = self.loop.time() if self.flow.read_paused else self._progress_at
            if (left_s := last_s + BODY_S - self.loop.time()) > 0:
                self._timer = self.loop.call_later(left_s, self._lose_patience)
                return
        if self._stage in (Stage.HEAD, Stage.BODY):
            self._refuse(RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", TOO_SLOW))
        else:
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch_unread(self) -> None:
        self._stop_unread_timer()
        self._unread_bytes = self._unread()
        self._unread_timer = self.loop.call_later(UNREAD_S, self._look_at_unread)

    def _look_at_unread(self) -> None:
        """End the connection unless the client has read more of its answer, however slowly."""
        if self._unread() <= self._unread_bytes - PROGRESS_BYTES:
            self._watch_unread()
            return
        log_refusal("Answer given up", code="unread", address=self._address)
        self.transport.abort()

    def _unread(self) -> int:
        """Return how many bytes of answers the client's machine has not taken."""
        # The kernel reports room only once much of its buffer is free: a slow reader seems to stand still.
        return self.transport.get_write_buffer_size() + unsent(self.transport.get_extra_info("socket"))

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _give_way(self) -> None:
        """End the connection in favour of another one."""
        self._stop_timer()
        self._place = None
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()  # at once: a close would wait until the client has read everything

    def _refuse(self, refused: RequestRefused) -> None:
        """Answer, unless another answer is under way, and close."""
        self._stop_timer()
        log_refusal("Request refused", status=refused.status, code=refused.code, address=self._address)
        if self._may_be_answered:  # in the middle of another answer it would be a part of that one
            self.transport.write(_answer(refused))
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()

    @property
    def _may_be_answered(self) -> bool:
        """Whether the next bytes that the client expects are the beginning of an answer to this request."""
        if self.cycle is None or self._stage in (Stage.SILENT, Stage.HEAD):
            return self.cycle is None or self.cycle.response_complete
        return self._stage is Stage.BODY and not self.pipeline and not self.cycle.response_started


# How long each stage may last; functions, so that tests can set the constants.
_PATIENCE_S = {
    Stage.SILENT: lambda: SILENT_S,
    Stage.HEAD: lambda: HEAD_S,
    Stage.BODY: lambda: BODY_S,
    Stage.DISCARDED: lambda: DISCARDED_S,
}


def _too_large() -> RequestRefused:
    return RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", TOO_LARGE)


def _answer(refused: RequestRefused) -> bytes:
    """Return a whole response, after which the connection ends."""
    body = json.dumps({"code": refused.code, "detail": str(refused)}).encode()
    lines = [
        f"HTTP/1.1 {refused.status.value} {refused.status.phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *([f"retry-after: {RETRY_AFTER_S}"] if refused.status == HTTPStatus.TOO_MANY_REQUESTS else []),
        "connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _repeated(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return the name of a header of one value that is there more than once."""
    seen = set()
    for name, _ in headers:
        if name in SINGLE and name in seen:
            return name.decode()
        seen.add(name)
    return None
