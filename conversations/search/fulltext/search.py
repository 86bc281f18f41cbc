"""Searching: first the events that are not indexed yet, then the index; the event stored last comes first."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import pairwise
from operator import and_, or_
from typing import Any, NamedTuple

from django.db.models import Case, Exists, F, OuterRef, Q, When

from conversations import access
from conversations.access import Visitor
from conversations.engines import case_insensitive
from conversations.events import SEQ_MAX
from conversations.models import ConversationQuerySet, Event, EventQuerySet, SearchProgress
from conversations.search import titles
from conversations.search.fulltext import index
from conversations.search.fulltext.index import Facets
from conversations.search.fulltext.questions import QueryBranch, Question
from conversations.search.fulltext.snippets import SnippetPart, snippet
from conversations.search.fulltext.words import Words

# A page ends after this many events, this much text or this much processor time; the next one continues.
EVENTS_MAX = 10_000
BYTES_MAX = 32 * 1024 * 1024
READING_S = 1.0  # at least one event is read even so
TEXTS = 200  # at most this many texts are in memory at a time
CANDIDATES_MAX = 4_000
# A search in at most this many conversations names them to the index; a larger one filters the index's
# results.
FEW = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchConditions:
    """Which events to search: those that meet every condition that is set."""

    kinds: Collection[str] = ()
    sources: Collection[str] = ()
    since: datetime | None = None  # aware; this moment or later
    before: datetime | None = None  # aware; earlier than this moment

    @property
    def is_anything(self) -> bool:
        return self == SearchConditions()


class Hit(NamedTuple):
    """A matching event with its conversation's columns."""

    pk: int
    public_id: str
    title: str | None
    version: str
    repository: str | None
    trigger: str | None
    seq: int
    event_id: str
    type: str
    kind: str
    source: str
    timestamp: datetime
    snippet: list[SnippetPart]


class HitPage(NamedTuple):
    """A page of hits, the newest first, and the key below which the next one begins; None on the last."""

    hits: list[Hit]
    below: int | None


_COLUMNS = (
    "pk",
    "conversation__public_id",
    "conversation__title",
    "conversation__version",
    "conversation__repository",
    "conversation__trigger",
    "seq",
    "event_id",
    "type",
    "kind",
    "source",
    "timestamp",
)


@dataclass(kw_only=True, slots=True)
class Scope:
    """Whose conversations to search, and which of them."""

    user: Visitor
    conversations: ConversationQuerySet
    is_narrow: bool  # some of the user's conversations are excluded


def search(
    scope: Scope, question: Question, wanted: SearchConditions, *, below: int | None = None, limit: int
) -> HitPage:
    """Return the newest matching events: at most `limit`, with keys below `below`.

    A page ends early if much had to be read. Raise ConversationNotFound for an anonymous user,
    SearchTooBroad if the database takes too long.
    """
    if not question.branches:
        return HitPage([], None)
    while True:
        looked_from = SearchProgress.through_now()
        page = _page(scope, question, wanted, looked_from, SEQ_MAX if below is None else below, limit)
        if SearchProgress.through_now() >= looked_from:
            return page
        # The index was emptied meanwhile, so matching events may be missing: read again.


def by_title(conversations: ConversationQuerySet, question: Question) -> ConversationQuerySet:
    """Return the conversations whose title contains the words of the query as written, in any case."""
    return conversations.filter(reduce(or_, map(_in_title, question.branches), Q(pk__in=[])))


def _in_title(branch: QueryBranch) -> Q:
    wanted = titles.holding(*(term.written for term in branch.wanted))
    unwanted = dict.fromkeys(term.written for term in branch.unwanted)
    return reduce(and_, (~Q(case_insensitive.holds("title", text)) for text in unwanted), wanted)


def _page(
    scope: Scope, question: Question, wanted: SearchConditions, through: int, below: int, limit: int
) -> HitPage:
    facets = _facets(scope, wanted)
    if facets is None:
        return HitPage([], None)
    hits: list[Hit] = []
    events = size = 0
    until = time.thread_time() + READING_S
    for pks in _candidates(question, facets, through, below, limit):
        for *columns, text in _rows(scope, facets, wanted, pks, limit):
            words = Words(text)
            if question.is_met_by(words):
                if len(hits) == limit:
                    return HitPage(hits, hits[-1].pk)
                hits.append(Hit._make([*columns, snippet(words, question.wanted)]))
            size += len(text)
            if size > BYTES_MAX or time.thread_time() > until:
                return HitPage(hits, columns[0])
        events += len(pks)
        if events > EVENTS_MAX or time.thread_time() > until:
            return HitPage(hits, pks[-1])
    return HitPage(hits, None)


def _candidates(
    question: Question, facets: Facets, through: int, below: int, limit: int
) -> Iterator[list[int]]:
    """Yield the keys of events that may match, the highest first, in batches.

    Up to the key `through` the index decides; above it, every event may match.
    """
    newest = Event.objects.filter(hidden=False).order_by("-pk").values_list("pk", flat=True)

    def unindexed(end: int, most: int) -> list[int]:
        # PostgreSQL reads backwards with one bound; with two it may sort everything between them.
        return [pk for pk in newest.filter(pk__lt=end)[:most] if pk > through]

    def indexed(end: int, most: int) -> list[int]:
        return index.newest(question, facets, below=end, limit=most)

    if below > through + 1:
        yield from _by_and_by(unindexed, below, limit)
    yield from _by_and_by(indexed, min(below, through + 1), limit)


def _by_and_by(read: Callable[[int, int], list[int]], below: int, limit: int) -> Iterator[list[int]]:
    """Yield what is read below a key, first a few rows and then more at a time, until there are none."""
    most = limit + 1
    while pks := read(below, most):
        yield pks
        if len(pks) < most:
            return
        below, most = pks[-1], min(most * 8, CANDIDATES_MAX)


def _rows(
    scope: Scope, facets: Facets, wanted: SearchConditions, pks: Sequence[int], limit: int
) -> Iterator[Any]:
    """Yield the columns of the events that are in scope and match the conditions, the highest key first.

    An event that a copied session repeats is left out where the session that it was copied from is searched.
    """
    rows = _matching(Event.objects.filter(hidden=False), wanted)
    if facets.conversations:
        rows = rows.filter(conversation_id__in=facets.conversations)
    # Not as a condition: otherwise the engine might go through the conversations one by one.
    in_scope = Exists(scope.conversations.filter(pk=OuterRef("conversation_id")).order_by())
    rows = rows.marked_repeated(scope.conversations).order_by("-pk")
    rows = rows.annotate(read=Case(When(in_scope & Q(is_repeated=False), then=F("text"))))
    ends = [0, *range(limit + 1, len(pks), TEXTS), len(pks)]
    for first, end in pairwise(ends):
        for row in rows.with_pks(pks[first:end]).values_list(*_COLUMNS, "read"):
            if row[-1] is not None:
                yield row


def _matching(rows: EventQuerySet, wanted: SearchConditions) -> EventQuerySet:
    if wanted.kinds:
        rows = rows.filter(kind__in=wanted.kinds)
    if wanted.sources:
        rows = rows.filter(source__in=wanted.sources)
    if wanted.since is not None:
        rows = rows.filter(timestamp__gte=wanted.since)
    if wanted.before is not None:
        rows = rows.filter(timestamp__lt=wanted.before)
    return rows


def _facets(scope: Scope, wanted: SearchConditions) -> Facets | None:
    """Return the facets to ask the index for; None if no conversation is in scope."""
    conversations: list[int] = []
    if scope.is_narrow:
        conversations = list(scope.conversations.values_list("pk", flat=True)[: FEW + 1])
        if not conversations:
            return None
    return Facets(
        owners=(access.pk_of(scope.user),),
        conversations=conversations if len(conversations) <= FEW else (),
        kinds=tuple(wanted.kinds),
        sources=tuple(wanted.sources),
    )
