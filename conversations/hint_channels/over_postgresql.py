"""The channel layer that carries hints between processes over PostgreSQL's LISTEN and NOTIFY, without Redis.

All hints of an installation share one channel, and each process ignores those without a reader there. They
name what changed, without its content, except the text of an answer in progress, which is stored nowhere yet.
Any role of the database may listen, so hints are encrypted with Fernet.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

from channels_redis.serializers import registry
from django.db import connection
from psycopg import AsyncConnection, sql

from conversations.hint_channels.base import BACK, BEAT_S, RETRY_S, WAIT_S, HintChannel, Link

CONNECT_WAIT_S = 2.0
SILENT_S = 4.0  # the listening connection is replaced after this long without a message
HINT_MAX_BYTES = 7_900  # PostgreSQL takes less than 8,000 bytes; longer hints are dropped
AT_ONCE = 500  # at most this many hints go in one statement

_NOTIFY = "SELECT pg_notify(%s, hint) FROM unnest(%s::text[]) AS hint"

Sent = tuple[str, "asyncio.Future[None]"]


class PostgresqlHints(HintChannel):
    def __init__(self, *, keys: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self._keys = keys

    def _new_link(self) -> Link:
        return _Link(self._prefix, self._keys)


class _Link(Link):
    """The connections of one event loop: one that notifies, and one that listens."""

    SERVICE = "PostgreSQL"

    def __init__(self, channel: str, keys: Sequence[str]) -> None:
        super().__init__()
        self._channel = channel
        self._own = f"beat.{uuid4().hex}"
        self._format = registry.get_serializer("msgpack", symmetric_encryption_keys=list(keys))
        self._listening = asyncio.Event()
        self._has_unheard = False  # whether a channel has joined a group before the connection listened
        self._unsent: list[Sent] = []
        self._sending: asyncio.Task[None] | None = None
        self._speaker: AsyncConnection[Any] | None = None
        self._speaking: set[asyncio.Task[None]] = set()
        self._abandoned: set[asyncio.Task[None]] = set()

    async def add(self, name: str, channel: str) -> None:
        """Add the channel, and wait briefly until the connection listens."""
        await super().add(name, channel)
        try:
            async with asyncio.timeout(WAIT_S if self.away_since is None else 0):
                await self._listening.wait()
        except TimeoutError:
            self._has_unheard = True

    async def publish(self, name: str, message: Mapping[str, Any]) -> None:
        self._require_there()
        await self._send_soon(name, message)

    async def close(self) -> None:
        await super().close()
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=WAIT_S)
        self._abandon_speaker()
        if self._abandoned:
            await asyncio.wait(self._abandoned, timeout=WAIT_S)

    # The connection that notifies

    async def _send_soon(self, name: str, message: Mapping[str, Any]) -> None:
        bare = {**message, "events": []} if "events" in message else message
        hint: str = self._format.serialize({"name": name, "message": bare}).decode("ascii")
        if len(hint) > HINT_MAX_BYTES:
            return
        sent = asyncio.get_running_loop().create_future()
        self._unsent.append((hint, sent))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())
        await sent

    async def _send_all(self) -> None:
        """Send the queued hints, as many as possible together: each commit takes a lock shared by all."""
        batch: list[Sent] = []
        try:
            while self._unsent:
                batch, self._unsent = self._unsent[:AT_ONCE], self._unsent[AT_ONCE:]
                await self._send([hint for hint, _ in batch])
                _settle(batch, None)
        except Exception as error:  # whatever it was, no caller must wait any longer
            _settle([*batch, *self._unsent], self._away(error))
            self._unsent = []
        finally:
            self._sending = None

    async def _send(self, hints: Sequence[str]) -> None:
        """Notify; use a new connection if the last one has broken since its last use."""
        was_there = self._speaker is not None
        try:
            await self._bounded(hints)
        except Exception:
            self._abandon_speaker()
            if not was_there:
                raise
            await self._bounded(hints)
        if self._keeping is None:
            self._note_back()

    async def _bounded(self, hints: Sequence[str]) -> None:
        """Raise TimeoutError in time: psycopg takes seconds to cancel a statement."""
        speaking = asyncio.get_running_loop().create_task(self._speak(hints))
        self._speaking.add(speaking)
        speaking.add_done_callback(self._speaking.discard)
        await asyncio.wait({speaking}, timeout=CONNECT_WAIT_S if self._speaker is None else WAIT_S)
        if not speaking.done():
            speaking.cancel()
            self._abandoned.add(speaking)
            speaking.add_done_callback(self._forget)
            raise TimeoutError("PostgreSQL does not answer")
        speaking.result()

    async def _speak(self, hints: Sequence[str]) -> None:
        if self._speaker is None:
            self._speaker = await _connected()
        await self._speaker.execute(_NOTIFY, [self._channel, list(hints)])

    def _abandon_speaker(self) -> None:
        speaker, self._speaker = self._speaker, None
        if speaker is not None:
            closing = asyncio.get_running_loop().create_task(_ended(speaker, set(self._speaking)))
            self._abandoned.add(closing)
            closing.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # read it, or asyncio logs it

    # The connection that listens

    async def _keep(self) -> None:
        while True:
            try:
                async with _kept(self._channel) as listener:
                    await self._listen_by(listener)
            except Exception as error:  # whatever it was, a new connection is the answer
                self._note_away(error)
            finally:
                self._listening.clear()
                self._abandon_speaker()  # both connections mostly end for the same reason
            await asyncio.sleep(RETRY_S)

    async def _listen_by(self, listener: AsyncConnection[Any]) -> None:
        self._listening.set()
        if self._has_unheard and self.away_since is None:
            for queue in self._queues.values():
                queue.put_nowait(BACK)
        self._has_unheard = False
        beating = asyncio.get_running_loop().create_task(self._beat())
        silent_s = 0.0
        try:
            while silent_s < SILENT_S:
                # The requested time, not the elapsed one: a busy event loop does not listen.
                silent_s += BEAT_S
                async for notification in listener.notifies(timeout=BEAT_S):
                    silent_s = 0.0
                    self._take(notification.payload)
        finally:
            beating.cancel()
        raise TimeoutError(f"nothing came back for {SILENT_S} s")

    async def _beat(self) -> None:
        """Send this process a hint again and again; if it cannot be sent, it does not come back."""
        while True:
            with suppress(Exception):
                await self._send_soon(self._own, {})
            await asyncio.sleep(BEAT_S)

    def _take(self, payload: str) -> None:
        try:
            hint = self._format.deserialize(payload.encode())
            name, message = hint["name"], hint["message"]
        except Exception:  # any role of the database may have sent it
            self._note_unreadable()
            return
        if name == self._own:
            self._note_back()
        elif isinstance(name, str):
            self._pass_on(name, message)


def _settle(batch: Sequence[Sent], error: Exception | None) -> None:
    for _, sent in batch:
        if sent.done():
            continue
        if error is None:
            sent.set_result(None)
        else:
            sent.set_exception(error)


async def _connected() -> AsyncConnection[Any]:
    """Return a connection whose commits do not wait for the disk: a hint need not survive a power cut."""
    parameters: Any = {
        name: value for name, value in connection.get_connection_params().items() if name not in _DJANGOS
    }
    parameters["options"] = f"{parameters.get('options', '')} -c synchronous_commit=off".strip()
    return await AsyncConnection.connect(**parameters, autocommit=True)


async def _ended(speaker: AsyncConnection[Any], speaking: set[asyncio.Task[None]]) -> None:
    """Close a connection once no statement uses it: libpq frees memory that a statement still reads."""
    if speaking and not speaker.closed:
        with suppress(OSError), socket.socket(fileno=os.dup(speaker.fileno())) as shared:
            shared.shutdown(socket.SHUT_RDWR)  # running statements fail at once
        await asyncio.wait(speaking)
    await speaker.close()


@asynccontextmanager
async def _kept(channel: str) -> AsyncIterator[AsyncConnection[Any]]:
    async with asyncio.timeout(CONNECT_WAIT_S):
        listener = await _connected()
    try:
        async with asyncio.timeout(CONNECT_WAIT_S):
            await listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        yield listener
    finally:
        await listener.close()


# Parameters of Django's own connections; the rest names the database and bounds connecting to it.
_DJANGOS = {
    "context",
    "cursor_factory",
    "prepare_threshold",
    "server_side_binding",
    "pool",
    "assume_role",
    "isolation_level",
}
