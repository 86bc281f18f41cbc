"""Writing the index behind the log: a step at a time, by one cursor over all events.

The cursor moves only to where all is settled (`conversations.horizon`); what lies behind it
is found by looking at the events themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.db import transaction

from conversations import guards, titles
from conversations.fulltext import index
from conversations.fulltext.index import Entry, Facets
from conversations.fulltext.words import Words
from conversations.horizon import KeyHorizon
from conversations.models import Event, SearchProgress

STEP_EVENTS = 200
STEP_BYTES = 512 * 1024
"""A step ends with the event that reaches this: on SQLite nobody else writes meanwhile."""


class Horizon(KeyHorizon[int]):
    """How far all is settled: an event with a key up to there that is not there yet will never be."""

    def __init__(self) -> None:
        super().__init__(int, guards.EVENT)


class Step(NamedTuple):
    """What one step did."""

    events: int
    is_last: bool
    """Nothing that is settled is left."""


def step(horizon: Horizon) -> Step:
    """Index the next events; of several processes one does, and the others do nothing."""
    through = SearchProgress.through_now()
    if through >= horizon.settled:
        return Step(0, is_last=True)
    last, pks = _next(through, horizon.settled)
    entries = list(_entries(pks))
    with transaction.atomic():
        if SearchProgress.move(through, last):
            index.add(entries)
    return Step(len(pks), is_last=last >= horizon.settled)


def begin_anew() -> None:
    """Empty the indexes, all or none; what is not in them is found without them until it is written again."""
    with transaction.atomic():
        SearchProgress.objects.update(through=0)
        index.empty()
        titles.begin_anew()


def _next(through: int, settled: int) -> tuple[int, list[int]]:
    """Return how far the next step goes, and the keys of its events."""
    rows = Event.objects.filter(pk__gt=through, pk__lte=settled).order_by("pk")
    pks, size_so_far = [], 0
    for pk, size in rows.values_list("pk", "size")[:STEP_EVENTS]:
        pks.append(pk)
        size_so_far += size
        if size_so_far >= STEP_BYTES:
            return pk, pks
    return (pks[-1] if len(pks) == STEP_EVENTS else settled), pks


def _entries(pks: list[int]) -> Iterator[Entry]:
    """Yield what the index keeps of these; of what its author hid, and of what has no words, nothing."""
    rows = Event.objects.with_pks(pks).filter(hidden=False).order_by("pk")
    for pk, owner, conversation, kind, source, text in rows.values_list(
        "pk", "conversation__owner_id", "conversation_id", "kind", "source", "text"
    ):
        if words := Words(text).different:
            facets = Facets((owner,), (conversation,), (kind,), (source,))
            yield index.entry(pk, facets, sorted(words))
