"""Pages of logs, read once for all readers of a process that are at the same place in a log."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from conversations.events import EventEnvelope
from conversations.models import ConversationRef
from sessions_app import astore

PAGE_MAX_BYTES = 512 * 1024
"""At most this much of a log, or one event, is held for a reader; it must take it before more is read."""

Place = tuple[int, int]
"""A conversation's key, and a seq."""


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
