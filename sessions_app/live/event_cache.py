"""The cache of announced events, shared by all readers of a process, so that late readers need no query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from sys import getsizeof
from typing import TypeVar
from weakref import WeakValueDictionary

from cachetools import LRUCache

from conversations.events import EventEnvelope
from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.live.replay_throttle import get_replay_throttle
from sessions_app.live.replays import PAGE_MAX_BYTES, Place

V = TypeVar("V")

RECENT_MAX_BYTES = 16 * 1024 * 1024
"""The cache keeps this much of the events, and this much of their translations."""
RUN_MAX_EVENTS = 100
"""At most this many are returned at once, and no more after PAGE_MAX_BYTES."""
_BESIDE_TEXT_BYTES = 500
"""The size of an entry beside its text."""


class RecentEvents:
    """The newest announced events of one event loop, and their forms on the wires."""

    def __init__(self, max_bytes: int = RECENT_MAX_BYTES) -> None:
        self._events: LRUCache[Place, EventEnvelope] = LRUCache(max_bytes, _bytes_kept_for)
        self._texts: LRUCache[Place, str] = LRUCache(max_bytes, _bytes_kept_for_text)
        self._reading: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def keep(self, pk: int, events: Sequence[EventEnvelope]) -> None:
        """Add events of the conversation with this key."""
        for event in events:
            _keep(self._events, (pk, event["seq"]), event)

    def after(self, pk: int, seq: int) -> list[EventEnvelope]:
        """Return cached events that follow `seq`, in order and without a gap: possibly none."""
        run: list[EventEnvelope] = []
        size = 0
        while len(run) < RUN_MAX_EVENTS and size < PAGE_MAX_BYTES:
            event = self._events.get((pk, seq + 1))
            if event is None:
                break
            run.append(event)
            size += _bytes_of(event)
            seq += 1
        return run

    async def read_after(self, conversation: ConversationRef, seq: int) -> list[EventEnvelope]:
        """Return some events that follow `seq`; if many readers miss the same ones, one of them queries."""
        pk = conversation.pk
        if run := self.after(pk, seq):
            return run
        async with self._reading.setdefault(pk, asyncio.Lock()):
            if run := self.after(pk, seq):
                return run
            await get_replay_throttle().yield_to_requests()
            page = await astore.read_after(conversation, seq, max_bytes=PAGE_MAX_BYTES)
            self.keep(pk, page)
            return page

    def shown(self, conversation: ConversationRef, event: EventEnvelope, write: Callable[[], str]) -> str:
        """Return the result of `write` for this event; it is called once for all readers."""
        place = (conversation.pk, event["seq"])
        text = self._texts.get(place)
        if text is None:
            text = write()
            _keep(self._texts, place, text)
        return text

    def keep_only(self, pks: Collection[int]) -> None:
        """Remove the events of all conversations but these."""
        for cache in (self._events, self._texts):
            for place in [place for place in cache if place[0] not in pks]:
                del cache[place]


def _bytes_of(event: EventEnvelope) -> int:
    """Return the memory of its texts: with one emoji in it, a text takes four bytes a character."""
    return getsizeof(event["payload"]) + getsizeof(event["text"])


def _bytes_kept_for(event: EventEnvelope) -> int:
    return _bytes_of(event) + _BESIDE_TEXT_BYTES


def _bytes_kept_for_text(text: str) -> int:
    return getsizeof(text) + _BESIDE_TEXT_BYTES


def _keep(cache: LRUCache[Place, V], place: Place, value: V) -> None:
    """Add a value unless it is there, or is larger than the cache."""
    if place not in cache and cache.getsizeof(value) <= cache.maxsize:
        cache[place] = value
