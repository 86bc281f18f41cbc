"""One WebSocket, the consumer that serves it, and the end of its session, independent of the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, WebSocketScope
from channels.consumer import AsyncConsumer

from conversations.outages import Outage, first_of
from sessions_app.event_loops import begun
from sessions_app.identity.principals import Refused
from sessions_app.live.text_frames import frame_of, text_of, writer_of
from sessions_app.refusals import log_socket_refused
from sessions_app.sockets.arrivals import Arrivals

FAILED, TRY_AGAIN_LATER = 1011, 1013
"""The close codes for a failure of the server and of its database; the client may reconnect."""
WHY_FAILED = "The server had to close the connection. Connect again."

SLOW_READER_S = 15.0
"""A client that takes no frame for this long is closed."""
FRAMES_IN_A_ROW = 8
"""After at most this many frames of one socket the event loop does other work."""
GRACE_S = 5.0
"""How long a closed client may take to read the reason."""
REFUSALS = frozenset({4400, 4401, 4403, 4404, 4409, 4429, 4001, 4004})
"""Close codes of the native and V1 sockets after which a client must not reconnect."""


_failures = Outage(__name__, "A socket was closed because the server could not go on")


class Closed(Exception):
    """The socket is over; nothing more can be sent."""


class Socket:
    def __init__(self, scope: WebSocketScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        self.scope = scope
        self.arrivals = Arrivals()
        self._receive = self.arrivals.by(receive)
        self._send = send
        self._writer = writer_of(scope)
        self._is_closed = False
        self._frames = 0

    async def accept(self) -> None:
        """Accept the client; nothing can be sent before."""
        await self._receive()
        await self._send({"type": "websocket.accept", "subprotocol": None, "headers": []})

    async def refuse(self) -> None:
        """Refuse the client: its handshake fails with HTTP 403."""
        await self._receive()
        self._is_closed = True
        # A close before `accept` is answered as HTTP 403; its code reaches no client.
        log_socket_refused(self.scope, code=403)
        await self._send({"type": "websocket.close", "code": 1008, "reason": ""})

    async def receive_text(self) -> str | None:
        """Return the next frame, None for a binary one. Raise Closed at the end."""
        self._frames += 1
        if self._frames % FRAMES_IN_A_ROW == 0:  # frames that have come already are read without waiting
            await asyncio.sleep(0)
        message: Any = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._is_closed = True
            raise Closed
        text = message.get("text")
        return text if isinstance(text, str) else None

    def send_at_once(self, frames: bytes) -> bool:
        """Send joined frames if the client has room; return whether they were sent.

        They should have about CHUNK_BYTES at most.
        """
        return not self._is_closed and self._writer is not None and self._writer.write_at_once(frames)

    async def send_text(self, text: str) -> None:
        """Send one frame. Raise Closed if the client is gone, TimeoutError if it does not read."""
        await self.send_frames((frame_of(text),))

    async def send_frames(self, frames: Sequence[bytes]) -> None:
        """Send frames of `frame_of` together; the client has SLOW_READER_S to take them.

        They should have about CHUNK_BYTES at most. Raise like `send_text`.
        """
        if self._is_closed:
            raise Closed
        for part in frames if self._writer is None else (b"".join(frames),):
            # Most are sent at once, and a timeout costs as much as a frame.
            if (rest := begun(self._sent(part))) is not None:
                async with asyncio.timeout(SLOW_READER_S):
                    await rest

    async def _sent(self, part: bytes) -> None:
        try:
            if self._writer is not None:
                await self._writer.write(part)
            else:
                await self._send({"type": "websocket.send", "text": text_of(part), "bytes": None})
        except OSError as error:  # the server's report that the client has left
            self._is_closed = True
            raise Closed from error

    async def close(self, code: int, reason: str = "") -> None:
        """Close with a code; do not wait for a client that does not read."""
        if self._is_closed:
            return
        self._is_closed = True
        if code in REFUSALS:
            log_socket_refused(self.scope, code=code)
        # A close frame holds 125 bytes, two of which are the code (RFC 6455, section 5.5).
        short = reason.encode()[:123].decode(errors="ignore")
        try:
            async with asyncio.timeout(GRACE_S):
                await self._send({"type": "websocket.close", "code": code, "reason": short})
        except (OSError, TimeoutError):
            pass


class SocketConsumer(AsyncConsumer):
    """A consumer that reads its socket itself; `as_asgi()` makes a WebSocket door of it.

    The dispatch of Channels costs several times as much per frame (`make bench ARGS="--only consumer"`):
    two tasks for each client, and a hop to a thread for each message. A door also needs tasks that end
    together, and a client that is not read while it waits. Hints come by the hub, which has one channel
    for all sockets of a process.
    """

    async def __call__(self, scope: Any, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        self.scope, self.base_send = scope, send
        await self.serve(Socket(scope, receive, send))

    async def serve(self, socket: Socket) -> None:
        """Serve one client from its handshake to its close."""
        raise NotImplementedError


class Ending(Protocol):
    """What a wire does at each end of a session; nothing is sent to a client that has left."""

    async def end_refused(self, refusal: Refused) -> None:
        """End because the client may not go on, or because everything was sent."""

    async def end_slow(self, error: Exception) -> None:
        """End because the client does not read."""

    async def end_failed(self, error: Exception) -> None:
        """End because the server cannot go on."""


@asynccontextmanager
async def ended(ending: Ending) -> AsyncIterator[None]:
    """End the session by what the block raises, once for each kind of error of tasks that ended together."""
    try:
        yield
    except* Refused as group:
        await ending.end_refused(cast(Refused, first_of(group)))
    except* TimeoutError as group:
        await ending.end_slow(first_of(group))
    except* Closed:
        pass
    except* Exception as group:
        await ending.end_failed(first_of(group))


class SocketEnding:
    """The end of a session on a WebSocket: a close code."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def end_refused(self, refusal: Refused) -> None:
        await self._socket.close(refusal.code, str(refusal))

    async def end_slow(self, error: Exception) -> None:
        # Before a session has begun, there is nothing to resume.
        await self.end_failed(error)

    async def end_failed(self, error: Exception) -> None:
        """Log the failure, and close so that the client reconnects."""
        _failures.failed(error)
        await self._socket.close(FAILED, WHY_FAILED)
