"""Presence: the connected clients as rows that expire, written in the background."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

from django.db import InterfaceError, OperationalError, transaction
from django.db.models.functions import Now

from conversations.events import ConversationRef
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.event_loops import PerEventLoop
from sessions_app.models import Connection

AGAIN_S = 1.0

_here: dict[str, str] = {}
"""The connections of this process and their doors; `touch` keeps their rows alive."""


@asynccontextmanager
async def connected(
    connection_id: str, conversation: ConversationRef, user_id: int, *, door: str
) -> AsyncIterator[None]:
    """Register the connection while the block runs; does not wait for the write."""
    _begin(connection_id, conversation, user_id, door=door)
    try:
        yield
    finally:
        await disconnect(connection_id)


async def connect(connection_id: str, conversation: ConversationRef, user_id: int, *, door: str) -> None:
    """Register the connection, once; return after the first attempt to write it."""
    if connection_id in _here:
        return
    await asyncio.shield(_begin(connection_id, conversation, user_id, door=door))


async def disconnect(connection_id: str) -> None:
    """Remove the connection; return after the first attempt to write that."""
    if connection_id not in _here:
        return
    del _here[connection_id]
    await asyncio.shield(_notebook().note(connection_id, None))


def _begin(
    connection_id: str, conversation: ConversationRef, user_id: int, *, door: str
) -> asyncio.Future[None]:
    _here[connection_id] = door
    row = Connection(
        id=connection_id,
        conversation_id=conversation.pk,
        user_id=user_id,
        door=door,
        last_seen_at=Now(),
    )
    return _notebook().note(connection_id, row)


class _Notebook:
    """The pending writes of one event loop: the newest of each connection, all in one transaction."""

    def __init__(self) -> None:
        self._waiting: dict[str, Connection | None] = {}
        """By id: a row to store, None for one to remove."""
        self._tried: asyncio.Future[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failing = Outage(
            __name__, "Who is connected could not be noted", "Who is connected is noted again"
        )

    def note(self, connection_id: str, row: Connection | None) -> asyncio.Future[None]:
        """Write this soon; the returned future is done after the first attempt."""
        self._waiting[connection_id] = row
        if self._tried is None:
            self._tried = asyncio.get_running_loop().create_future()
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())
        return self._tried

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, {}
                tried, self._tried = self._tried, None
                is_written = await self._try(batch)
                if tried is not None and not tried.done():
                    tried.set_result(None)
                if not is_written:
                    # A row that was not removed expires by itself; newer writes are still pending.
                    arrived = {name: row for name, row in batch.items() if row is not None}
                    self._waiting = {**arrived, **self._waiting}
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._writing = None

    async def _try(self, batch: dict[str, Connection | None]) -> bool:
        """Write a batch; return whether it is done, because it is stored or never can be."""
        try:
            arrived = [row for row in batch.values() if row is not None]
            await astore.change(record, arrived, [name for name, row in batch.items() if row is None])
        except Exception as error:  # presence is useful, but must not delay what clients connect for
            is_refused = not isinstance(error, (OperationalError, InterfaceError))
            if is_refused and len(batch) > 1:
                # One row is refused: its conversation or its user was deleted.
                for name, row in batch.items():
                    if not await self._try({name: row}):
                        return False
                return True
            self._failing.failed(error)
            return is_refused
        self._failing.worked()
        return True


_notebooks = PerEventLoop(_Notebook)


def _notebook() -> _Notebook:
    return _notebooks.get()


def here() -> list[str]:
    return list(_here)


def doors_here() -> Counter[str]:
    return Counter(list(_here.values()))


def record(arrived: Collection[Connection], gone: Collection[str]) -> None:
    """Store new connections and remove ended ones, in one transaction."""
    with transaction.atomic():
        Connection.objects.bulk_create(arrived, ignore_conflicts=True)  # an attempt may have been stored
        Connection.objects.with_ids(gone).delete()


def touch(connection_ids: Iterable[str]) -> None:
    """Renew the rows of these connections, and remove expired ones."""
    Connection.objects.with_ids(connection_ids).update(last_seen_at=Now())
    Connection.objects.expired().delete()
