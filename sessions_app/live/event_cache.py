"""What the readers of a process share: announced events, and pages of logs that are being replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from sys import getsizeof
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from cachetools import LRUCache

from conversations.events import ConversationRef, EventEnvelope
from conversations.log.reads import PAGE_MAX_EVENTS
from sessions_app import astore
from sessions_app.live.text_frames import frame_of

K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")

RECENT_MAX_BYTES = 16 * 1024 * 1024
"""The most memory of the events; the same for their translations, and for their frames."""
PAGE_MAX_BYTES = 512 * 1024
"""At most this much of a log, or one event, is held for a reader; it must take it before more is read."""
_BESIDE_TEXT_BYTES = 500

Place = tuple[int, int]
"""A conversation's key, and a seq."""


class RecentEvents:
    """The newest announced events of one event loop, and their forms on the wires."""

    def __init__(self, max_bytes: int = RECENT_MAX_BYTES) -> None:
        self._events: LRUCache[Place, EventEnvelope] = LRUCache(
            max_bytes, lambda event: _bytes_of(event) + _BESIDE_TEXT_BYTES
        )
        self._texts: LRUCache[Place, str] = LRUCache(max_bytes, _bytes_kept_for_text)
        self._frames: LRUCache[tuple[int, int, str], bytes] = LRUCache(max_bytes, _bytes_kept_for_text)
        # The most memory of joined frames, which readers of large groups wait for at the same time.
        joined_max_bytes = 2 * 1024 * 1024
        self._joined: LRUCache[tuple[int, int, int, str], bytes] = LRUCache(
            min(joined_max_bytes, max_bytes), _bytes_kept_for_text
        )
        """The frames of events that are shown together, by the first and the last of them, for each wire."""
        self._reading: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def keep(self, pk: int, events: Sequence[EventEnvelope]) -> None:
        for event in events:
            _keep(self._events, (pk, event["seq"]), event)

    def after(self, pk: int, seq: int) -> list[EventEnvelope]:
        """Return cached events that follow `seq`, in order and without a gap: possibly none."""
        run: list[EventEnvelope] = []
        size = 0
        while len(run) < PAGE_MAX_EVENTS and size < PAGE_MAX_BYTES:
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
            if run := self.after(pk, seq):  # another reader has read them meanwhile
                return run
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

    def framed(
        self,
        wire: str,
        conversation: ConversationRef,
        event: EventEnvelope,
        write: Callable[[EventEnvelope], str],
    ) -> bytes:
        """Return the frame of the result of `write`; for a live event it is made once for all of a wire."""
        pk, seq = conversation.pk, event["seq"]
        if (pk, seq) not in self._events:
            return frame_of(write(event))
        frame = self._frames.get((pk, seq, wire))
        if frame is None:
            frame = frame_of(write(event))
            _keep(self._frames, (pk, seq, wire), frame)
        return frame

    def framed_together(
        self,
        wire: str,
        conversation: ConversationRef,
        events: Sequence[EventEnvelope],
        write: Callable[[EventEnvelope], str],
    ) -> bytes:
        """Return the joined frames of the events that one hint brought; they are joined once for a wire."""
        place = (conversation.pk, events[0]["seq"], events[-1]["seq"], wire)
        frames = self._joined.get(place)
        if frames is None:
            frames = b"".join([self.framed(wire, conversation, event, write) for event in events])
            _keep(self._joined, place, frames)
        return frames

    def keep_only(self, pks: Collection[int]) -> None:
        _keep_only(self._events, pks)
        _keep_only(self._texts, pks)
        _keep_only(self._frames, pks)
        _keep_only(self._joined, pks)


def _bytes_of(event: EventEnvelope) -> int:
    """Return the memory of its texts."""
    # Not their lengths: with one emoji in it, a text takes four bytes for each character.
    return getsizeof(event["payload"]) + getsizeof(event["text"])


def _bytes_kept_for_text(text: str | bytes) -> int:
    return getsizeof(text) + _BESIDE_TEXT_BYTES


def _keep(cache: LRUCache[K, V], key: K, value: V) -> None:
    """Add a value unless it is there, or is larger than the cache."""
    # The cache raises for what is larger than itself.
    if key not in cache and cache.getsizeof(value) <= cache.maxsize:
        cache[key] = value


def _keep_only(cache: LRUCache[K, Any], pks: Collection[int]) -> None:
    for key in [key for key in cache if key[0] not in pks]:
        del cache[key]


class Page(list[EventEnvelope]):
    """Events that follow a place in a log, in order."""

    __slots__ = ("__weakref__",)


class Pages:
    """The pages that readers of one event loop are being sent; a page without a reader is freed."""

    def __init__(self) -> None:
        self._pages: WeakValueDictionary[Place, Page] = WeakValueDictionary()
        self._reading: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def read_after(self, conversation: ConversationRef, seq: int) -> Page:
        """Return some events after `seq`; none only if there were none when this was called."""
        place = conversation.pk, seq
        async with self._reading.setdefault(place, asyncio.Lock()):
            page = self._pages.get(place)
            if page is None:  # an empty one is never shared, because events may follow by now
                page = Page(await astore.read_after(conversation, seq, max_bytes=PAGE_MAX_BYTES))
                if page:
                    self._pages[place] = page
            return page
