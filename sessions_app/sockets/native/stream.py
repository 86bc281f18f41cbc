"""Server-sent events with the frames of the native sockets, for clients that cannot use WebSockets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from conversations.cursors import EventCursor
from conversations.engines import failures
from conversations.events import ConversationRef, EventEnvelope
from conversations.outages import Outage
from sessions_app.identity.principals import Principal, Refused
from sessions_app.live import open_streams, presence
from sessions_app.live.feed import Feed
from sessions_app.live.text_frames import in_chunks
from sessions_app.loops.manager import get_manager
from sessions_app.models import new_connection_id
from sessions_app.sockets.native import frames
from sessions_app.sockets.native.list_reader import ListReader, Since
from sessions_app.sockets.native.reader import FrameReader
from sessions_app.sockets.socket import FAILED, TRY_AGAIN_LATER, WHY_FAILED, ended

IDLE_S = 15 * 60.0
"""A stream ends after this long with heartbeats only; its client may reconnect."""
COMPLETE, RESTARTING = 1000, 1012
"""The codes of normal ends (RFC 6455, section 7.4.1)."""
WHOLE = "This was all. Ask again with the last id."
IDLE = "Nothing has happened for a while. Ask again with the last id."
SERVER_ENDS = "The server is restarting. Ask again with the last id."

_failures = Outage(__name__, "A stream was ended because the server could not go on")
# A line of a server-sent event ends at any of these, so a text with one needs a second `data`.
_LINES = re.compile("\r\n|\r|\n")

Write = Callable[[bytes], Awaitable[None]]
"""Returns when the client has room for more."""


def event_of(text: str, cursor: str = "") -> bytes:
    """Return a server-sent event with this data; a client resumes from its `cursor`."""
    name = f"id: {cursor}\n" if cursor else ""
    data = "".join(f"data: {line}\n" for line in _LINES.split(text))
    return f"{name}{data}\n".encode()


class StreamEnding:
    """The end of a stream is a frame `end`, since the HTTP status was sent at its start."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._server_ends = open_streams.begin()
        self._shown_at = asyncio.get_running_loop().time()

    async def _serve(self, *tasks: Callable[[], Awaitable[None]]) -> None:
        # Browsers wait this long before they reconnect.
        retry_ms = 2_000
        await self._write(f"retry: {retry_ms}\n\n".encode())
        async with ended(self):
            await get_manager().ensure_started()
            async with asyncio.TaskGroup() as group:
                for task in (*tasks, self._end_with_server):
                    group.create_task(_run(task))

    async def _end_with_server(self) -> None:
        await self._server_ends.wait()
        raise Refused(RESTARTING, SERVER_ENDS)

    async def end_refused(self, refusal: Refused) -> None:
        await self._end(refusal.code, str(refusal))

    async def end_slow(self, error: Exception) -> None:
        # The HTTP server closes the connection of a client that does not read.
        await self.end_failed(error)

    async def end_failed(self, error: Exception) -> None:
        if isinstance(error, failures.FAILURES):
            await self._end(TRY_AGAIN_LATER, failures.sentence(error))
            return
        _failures.failed(error)
        await self._end(FAILED, WHY_FAILED)

    async def _end(self, code: int, detail: str) -> None:
        await self._write(event_of(frames.frame_json(type="end", code=code, detail=detail)))

    async def _show_frame(self, frame: dict[str, Any], *, cursor: str = "") -> None:
        """Send a frame; raise Refused after IDLE_S with heartbeats only."""
        now = asyncio.get_running_loop().time()
        if frame["type"] != "heartbeat":
            self._shown_at = now
        elif now - self._shown_at >= IDLE_S:
            raise Refused(COMPLETE, IDLE)
        await self._write(event_of(frames.frame_json(**frame), cursor))

    async def _show_news(self, event: bytes) -> None:
        self._shown_at = asyncio.get_running_loop().time()
        await self._write(event)


class ConversationStream(FrameReader, StreamEnding):
    def __init__(
        self,
        principal: Principal,
        conversation: ConversationRef,
        write: Write,
        *,
        after: EventCursor,
        follow: bool,
        payload: bool,
    ) -> None:
        """Without `follow`, it ends at the end of the log."""
        FrameReader.__init__(self, principal, conversation, after=after.seq, payload=payload)
        StreamEnding.__init__(self, write)
        self._after = after
        self._follows = follow

    async def serve(self) -> None:
        connection_id = new_connection_id()
        async with presence.connected(connection_id, self._conversation, self._user_pk, door=self.door):
            await self._serve(self._show, self._heartbeat)

    async def _show(self) -> None:
        await Feed(self._conversation, self, after=self._after).run(follow=self._follows)
        raise Refused(COMPLETE, WHOLE)

    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        _, write = self._event_frames
        for chunk in in_chunks(events):
            await self._show_news(b"".join(event_of(write(each), cursor_of(each)) for each in chunk))
            self._shown_through = chunk[-1]["seq"]

    async def _send(self, **frame: Any) -> None:
        await self._show_frame(frame)


class ListStream(ListReader, StreamEnding):
    def __init__(self, principal: Principal, write: Write, *, since: Since | None, follow: bool) -> None:
        """Without `follow`, it ends after the changes since `since`."""
        ListReader.__init__(self, principal, since, follow=follow)
        StreamEnding.__init__(self, write)

    async def serve(self) -> None:
        await self._serve(self._show_all, self._heartbeat)

    async def _show_all(self) -> None:
        await self._show()
        await self._beat()  # it has the cursor to ask again from
        raise Refused(COMPLETE, WHOLE)

    async def _send(self, **frame: Any) -> None:
        await self._show_frame(frame, cursor=frame.get("cursor", ""))

    async def _send_text(self, text: str) -> None:
        await self._show_news(event_of(text))


def cursor_of(event: EventEnvelope) -> str:
    return f"{event['seq']}.{event['fingerprint']}"


async def _run(task: Callable[[], Awaitable[None]]) -> None:
    await task()
