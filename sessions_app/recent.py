"""The cache of announced events, shared by all readers of a process, so that late readers need no query."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from conversations.events import EventEnvelope
from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.courtesy import courtesy

V = TypeVar("V")

RECENT_MAX_CHARACTERS = 16 * 1024 * 1024
"""The cache keeps this much of the events, and this much of their translations."""
RUN_MAX_EVENTS = 100
"""At most this many are returned at once."""
_BESIDE_TEXT = 500
"""The size of an entry beside its text."""

Place = tuple[int, int]
"""A conversation's key, and a seq."""


class RecentEvents:
    """The newest announced events of one event loop, and their forms on the wires."""

    def __init__(self, max_characters: int = RECENT_MAX_CHARACTERS) -> None:
        self._events: _Bounded[EventEnvelope] = _Bounded(max_characters)
        self._texts: _Bounded[str] = _Bounded(max_characters)
        self._reading: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def keep(self, pk: int, events: Sequence[EventEnvelope]) -> None:
        """Add events of the conversation with this key."""
        for event in events:
            size = len(event["payload"]) + len(event["text"])
            self._events.keep((pk, event["seq"]), event, size)

    def after(self, pk: int, seq: int) -> list[EventEnvelope]:
        """Return cached events that follow `seq`, in order and without a gap: possibly none."""
        run: list[EventEnvelope] = []
        while len(run) < RUN_MAX_EVENTS and (event := self._events.get((pk, seq + 1))) is not None:
            run.append(event)
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
            await courtesy().give_way()
            page = await astore.read_after(conversation, seq)
            self.keep(pk, page)
            return page

    def shown(self, conversation: ConversationRef, event: EventEnvelope, write: Callable[[], str]) -> str:
        """Return the result of `write` for this event; it is called once for all readers."""
        place = (conversation.pk, event["seq"])
        text = self._texts.get(place)
        if text is None:
            text = write()
            self._texts.keep(place, text, len(text))
        return text


class _Bounded(Generic[V]):
    """Values by place; if there are too many, the least recently used are removed."""

    def __init__(self, max_characters: int) -> None:
        self._max_characters = max_characters
        self._characters = 0
        self._values: OrderedDict[Place, tuple[V, int]] = OrderedDict()

    def get(self, place: Place) -> V | None:
        found = self._values.get(place)
        if found is None:
            return None
        self._values.move_to_end(place)
        return found[0]

    def keep(self, place: Place, value: V, characters: int) -> None:
        if place in self._values:
            return
        size = characters + _BESIDE_TEXT
        self._values[place] = (value, size)
        self._characters += size
        while self._characters > self._max_characters:
            _, (_, size) = self._values.popitem(last=False)
            self._characters -= size
