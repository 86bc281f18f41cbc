"""Writing the search index after the log: step by step, with one cursor over all events.

The cursor moves only up to the watermark (`conversations.engines.watermark`). Search reads the events above
the cursor directly.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from django.db import transaction

from conversations.engines.watermark import EventHorizon
from conversations.log.reads import STEP_BYTES, STEP_EVENTS
from conversations.models import ConversationRef, Event, EventQuerySet, SearchProgress
from conversations.search import titles
from conversations.search.fulltext import index
from conversations.search.fulltext.index import Facets, IndexEntry
from conversations.search.fulltext.words import Words

REST_S = 0.01  # the pause between two steps of a rebuild, for waiting writers


class IndexingStep(NamedTuple):
    events: int
    is_last: bool  # no event up to the watermark is left


def step(watermark: EventHorizon) -> IndexingStep:
    """Index the next events; if several processes do this, one of them stores its step."""
    through = SearchProgress.through_now()
    if through >= watermark.settled:
        return IndexingStep(0, is_last=True)
    last, pks = _next(through, watermark.settled)
    entries = list(entries_of(pks, known_through=SearchProgress.known_through()))
    with transaction.atomic():
        if SearchProgress.move(through, last):
            index.add(entries)
    return IndexingStep(len(pks), is_last=last >= watermark.settled)


def begin_anew() -> None:
    """Empty the indexes, all or none; until they are rebuilt, search reads the events directly."""
    with transaction.atomic():
        SearchProgress.objects.update(through=0, words_through=0)
        index.empty()
        titles.begin_anew()


def rebuild(*, resume: bool = False) -> int:
    """Empty the indexes and fill them from the log and the titles; return the number of events read.

    With `resume`, continue an interrupted rebuild.
    """
    watermark = EventHorizon()
    watermark.look()
    newest = watermark.newest
    if not resume:
        begin_anew()
    while titles.step():
        time.sleep(REST_S)
    events = 0
    while SearchProgress.through_now() < newest:
        watermark.look()
        events += step(watermark).events
        time.sleep(REST_S)
    return events


def _next(through: int, settled: int) -> tuple[int, list[int]]:
    # Where the next step ends, and the keys of its events.
    rows = Event.objects.filter(pk__gt=through, pk__lte=settled).order_by("pk")
    pks, size_so_far = [], 0
    for pk, size in rows.values_list("pk", "size")[:STEP_EVENTS]:
        pks.append(pk)
        size_so_far += size
        if size_so_far >= STEP_BYTES:
            return pk, pks
    return (pks[-1] if len(pks) == STEP_EVENTS else settled), pks


def entries_of(pks: list[int], *, known_through: int = 0) -> Iterator[IndexEntry]:
    """Yield the index entries of these events.

    Hidden events, events without words and those of temporary conversations get none.

    Events up to `known_through` have an entry in a former form, which is right where the text is ASCII.
    """
    yield from _entries(Event.objects.with_pks(pks).of_permanent(), known_through)


def take_up(conversation: ConversationRef, *, first: int, last: int) -> None:
    """Index these events of a conversation that was temporary when the index passed over them."""
    rows = Event.objects.of(conversation).filter(seq__gte=first, seq__lte=last)
    with transaction.atomic():
        SearchProgress.objects.select_for_update().get()
        index.add(list(_entries(rows)))


def _entries(rows: EventQuerySet, known_through: int = 0) -> Iterator[IndexEntry]:
    for pk, owner, conversation, kind, source, text in (
        rows.filter(hidden=False)
        .order_by("pk")
        .values_list("pk", "conversation__owner_id", "conversation_id", "kind", "source", "text")
    ):
        if pk <= known_through and text.isascii():
            continue
        if words := Words(text).different:
            facets = Facets((owner,), (conversation,), (kind,), (source,))
            yield index.entry(pk, facets, sorted(words))
