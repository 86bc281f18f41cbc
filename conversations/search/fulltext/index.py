"""The index: the words of each event, to find the newest events that may match.

It stores no positions, so each event that it finds is checked. Beside words it has facets, words that no
user can type: the owner of the event, its kind and source. Both engines use the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines import guards
from conversations.search.fulltext.limits import limited
from conversations.search.fulltext.questions import QueryBranch, Question, Term
from conversations.search.fulltext.words import RESERVED

TABLE = guards.SEARCH_TEXT

_FACET = RESERVED

# Keys of events are grouped in blocks of 8,192, of 131,072 and of 2,097,152, as powers of two.
_BLOCKS = (13, 17, 21)

_CREATION = {
    # Only ASCII spaces separate the words of a row; positions are not stored.
    "sqlite": [f"CREATE VIRTUAL TABLE {TABLE} USING fts5(words, tokenize = 'ascii', detail = 'none')"],
    "postgresql": [
        f"CREATE TABLE {TABLE} (event_id bigint PRIMARY KEY, words tsvector NOT NULL)",
        # New rows wait in a list that every query reads, so it is kept short.
        f"CREATE INDEX conversations_searchtext_words ON {TABLE} USING gin (words) "
        "WITH (gin_pending_list_limit = 512)",
    ],
}
# An event that was purged after it was read leaves no words.
_IS_THERE = f"EXISTS (SELECT 1 FROM {guards.EVENT} WHERE id = added.event_id)"
_ADDING = {
    "sqlite": f"INSERT OR REPLACE INTO {TABLE} (rowid, words) "
    f"SELECT event_id, words FROM (SELECT %s AS event_id, %s AS words) AS added WHERE {_IS_THERE}",
    "postgresql": f"INSERT INTO {TABLE} (event_id, words) "
    "SELECT event_id, array_to_tsvector(string_to_array(words, ' ')) "
    f"FROM unnest(%s::bigint[], %s::text[]) AS added (event_id, words) WHERE {_IS_THERE} "
    # An entry is there already if its words were made in a former form.
    f"ON CONFLICT (event_id) DO UPDATE SET words = EXCLUDED.words WHERE {TABLE}.words <> EXCLUDED.words",
}
_FINDING = {
    # Read backwards until there are enough: a word of every event costs as much as a rare one.
    "sqlite": f"SELECT rowid FROM {TABLE} WHERE {TABLE} MATCH %s AND rowid < %s ORDER BY rowid DESC LIMIT %s",
    # Sort the index's result; otherwise the engine might read the table by its key instead.
    "postgresql": f"WITH found AS MATERIALIZED "
    f"(SELECT event_id FROM {TABLE} WHERE words @@ %s::tsquery AND event_id < %s) "
    "SELECT event_id FROM found ORDER BY event_id DESC LIMIT %s",
}


class IndexEntry(NamedTuple):
    event_pk: int
    words: Iterable[str]


class Facets(NamedTuple):
    """Facts of which each must have one of these values; an empty list allows any."""

    owners: Sequence[int] = ()
    conversations: Sequence[int] = ()
    kinds: Sequence[str] = ()
    sources: Sequence[str] = ()

    def words(self) -> list[list[str]]:
        """Return the words of these facts: the row of a matching event has one word of each list."""
        facts: tuple[tuple[str, Sequence[int | str]], ...] = (
            ("o", self.owners),
            ("c", self.conversations),
            ("k", self.kinds),
            ("s", self.sources),
        )
        return [
            [f"{_FACET}{name}{each.encode().hex() if isinstance(each, str) else each}" for each in values]
            for name, values in facts
            if values
        ]


def create(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        for statement in _CREATION[connection.vendor]:
            cursor.execute(statement)


def drop(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {TABLE}")


def empty() -> None:
    if connection.vendor == "sqlite":
        drop(connection)
        create(connection)
    else:  # a new table would lock the events, to which it refers
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {TABLE}")


def entry(event_pk: int, facets: Facets, words: Iterable[str]) -> IndexEntry:
    """Return the entry of an event with these facets, one of each, and words."""
    blocks = (_block(shift, event_pk >> shift) for shift in _BLOCKS) if connection.vendor != "sqlite" else ()
    kept = [word for of_facet in facets.words() for word in of_facet] + list(blocks)
    size = sum(len(word.encode()) for word in kept)
    # PostgreSQL stores 1 MiB of words for a row, and no text within the limits has more.
    words_max_bytes = 900_000
    for word in words:
        size += len(word.encode())
        if size > words_max_bytes:
            break
        kept.append(word)
    return IndexEntry(event_pk, kept)


def add(entries: Sequence[IndexEntry]) -> None:
    """Store these entries, except those of purged events. SearchProgress must be locked."""
    rows = [(each.event_pk, " ".join(each.words)) for each in entries]
    if not rows:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.executemany(_ADDING["sqlite"], rows)
        else:
            cursor.execute(_ADDING["postgresql"], [list(column) for column in zip(*rows, strict=True)])


def newest(question: Question, facets: Facets, *, below: int, limit: int) -> list[int]:
    """Return the keys of events that may match, the highest first: at most `limit`, below a key.

    If there are fewer, no more match. Raise SearchTooBroad if one of the windows takes too long.
    """
    syntax = _SYNTAX[connection.vendor]
    if connection.vendor == "sqlite":
        return _found(syntax.condition(question, facets.words()), below, limit)
    keys: list[int] = []
    for first, blocks in _windows(below):
        condition = syntax.condition(question, [*facets.words(), *([blocks] if blocks else [])])
        keys += _found(condition, below, limit - len(keys))
        if len(keys) == limit:
            break
        below = first
    return keys


def _found(condition: str, below: int, limit: int) -> list[int]:
    with limited() as beginning, connection.cursor() as cursor:
        cursor.execute(beginning + _FINDING[connection.vendor], [condition, below, limit])
        if beginning:
            cursor.nextset()
        return [key for (key,) in cursor.fetchall()]


def _windows(below: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the first key of each window and its blocks; no blocks for the last window, the rest.

    The newest window is short, and each is longer than the one before. Enough events with a frequent word
    are soon found, without reading more; a word that does not occur takes one query for each window.
    """
    end = below
    for shift in _BLOCKS:
        first = max(0, ((end - 1) >> shift) - 1) << shift
        yield first, list(_covering(first, end))
        if first == 0:
            return
        end = first
    yield 0, []


def _covering(first: int, end: int) -> Iterator[str]:
    """Yield the fewest blocks that cover the keys from `first` to `end`, and perhaps some beyond."""
    at = first
    while at < end:
        fitting = (shift for shift in _BLOCKS[1:] if at % (1 << shift) == 0 and at + (1 << shift) <= end)
        shift = max(fitting, default=_BLOCKS[0])
        yield _block(shift, at >> shift)
        at += 1 << shift


def _block(shift: int, number: int) -> str:
    return f"{_FACET}b{shift}x{number}"


class _Syntax(NamedTuple):
    both: str
    either: str
    without: str
    quote: str
    beginning: str

    def condition(self, question: Question, facets: Iterable[Sequence[str]]) -> str:
        """Return the query in the engine's syntax: its results may match, all other events do not."""
        limits = [f"({self.either.join(map(self._quoted, words))})" for words in facets]
        asked = self.either.join(f"({self._branch(branch)})" for branch in question.branches)
        return self.both.join([*limits, f"({asked})"])

    def _branch(self, branch: QueryBranch) -> str:
        wanted = self.both.join(self._word(*word) for term in branch.wanted for word in _words_of(term))
        # An event with all words of a phrase may still not contain the phrase.
        unwanted = [
            self._word(*word) for term in branch.unwanted if len(term.words) == 1 for word in _words_of(term)
        ]
        return f"({wanted}){self.without}({self.either.join(unwanted)})" if unwanted else wanted

    def _word(self, word: str, is_beginning: bool) -> str:
        return self._quoted(word) + (self.beginning if is_beginning else "")

    def _quoted(self, word: str) -> str:
        return f"{self.quote}{word}{self.quote}"


_SYNTAX = {
    "sqlite": _Syntax(" AND ", " OR ", " NOT ", '"', " *"),
    "postgresql": _Syntax(" & ", " | ", " & !", "'", ":*"),
}


def _words_of(term: Term) -> Iterator[tuple[str, bool]]:
    # Each word, and whether it is only a beginning.
    last = len(term.words) - 1
    for number, word in enumerate(term.words):
        yield word, term.is_beginning and number == last
