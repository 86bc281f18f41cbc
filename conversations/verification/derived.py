"""Verifying what is derived from the log, and rebuilding it: the search index and the index of titles."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from django.db import Error, connection, transaction

from conversations.engines import guards
from conversations.engines.case_insensitive import IN_CAPITALS
from conversations.models import DamageKind, SearchProgress, VerificationFinding
from conversations.search.fulltext import indexing
from conversations.search.fulltext.index import TABLE, IndexEntry
from conversations.verification.damage import PER_CONVERSATION_MAX, Damage
from conversations.verification.store import VerificationStep

SAMPLES = 1_000  # events that are compared with their entries, unless all are
GROUP = 500

EXAMINED = frozenset({DamageKind.SEARCH, DamageKind.TITLE})

_ENTRIES = {
    "sqlite": f"SELECT rowid, words FROM {TABLE} WHERE rowid IN ({{keys}})",
    # Compared as the engine keeps them: sorted, each word once.
    "postgresql": f"SELECT event_id, words::text FROM {TABLE} WHERE event_id IN ({{keys}})",
}
_KEPT = "SELECT array_to_tsvector(string_to_array(words, ' '))::text FROM unnest(%s::text[]) AS words"
_KEY = {"sqlite": "rowid", "postgresql": "event_id"}
# The events of a temporary conversation get into the index while it is being kept: either is right.
_EXISTING = (
    f"SELECT event.id FROM {guards.EVENT} AS event JOIN {guards.CONVERSATION} AS conversation "
    "ON conversation.id = event.conversation_id "
    "WHERE conversation.expires_at IS NULL AND event.id IN ({keys})"
)
_SOME_KEYS = "SELECT id FROM {table} WHERE id > %s AND id <= %s ORDER BY id LIMIT %s"
_TITLE_KEY = {"sqlite": "rowid", "postgresql": "conversation_id"}


def steps(*, everything: bool) -> Iterator[VerificationStep]:
    """Compare entries of the indexes with their events and titles: samples, or all of them.

    An event without an entry is found if it is among those compared.
    """
    through = SearchProgress.through_now()
    found = 0
    for keys in _chosen(through, everything=everything):
        damage = _wrong_entries(keys)[: PER_CONVERSATION_MAX - found]
        if SearchProgress.through_now() < through:  # it is being rebuilt meanwhile
            yield VerificationStep(is_cut_short=True)
            return
        found += len(damage)
        is_full = found >= PER_CONVERSATION_MAX
        yield VerificationStep(found=damage, is_cut_short=is_full)
        if is_full:
            break
    if everything:
        left_over = list(_left_over())
        is_full = len(left_over) >= PER_CONVERSATION_MAX
        yield VerificationStep(found=[*left_over, *_broken_index()], is_cut_short=is_full)
    titles = list(_wrong_titles(None if everything else SAMPLES))
    yield VerificationStep(found=titles, is_cut_short=len(titles) >= PER_CONVERSATION_MAX)


def is_damaged() -> bool:
    """Return whether the last verification of the indexes found them damaged."""
    return VerificationFinding.objects.filter(problem__in=EXAMINED).exists()


def _chosen(through: int, *, everything: bool) -> Iterator[list[int]]:
    """Yield keys of events that should be in the index, group by group."""
    if everything:
        at = 0
        while keys := _keys(at, through, GROUP):
            yield keys
            at = keys[-1]
        return
    # A random key may have no event; then the next one is taken.
    possible = range(min(_keys(0, through, 1), default=through + 1) - 1, through)
    places = random.sample(possible, min(SAMPLES, len(possible)))
    chosen = sorted({key for place in places for key in _keys(place, through, 1)})
    for first in range(0, len(chosen), GROUP):
        yield chosen[first : first + GROUP]


def _keys(above: int, through: int, limit: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(_SOME_KEYS.format(table=guards.EVENT), [above, through, limit])
        return [key for (key,) in cursor.fetchall()]


def _wrong_entries(keys: Sequence[int]) -> list[Damage]:
    """Return the damage of entries that are wrong, and still are when they are read again.

    The entries and their events are read one after another, and an event may be purged in between.
    """
    again = _unlike(keys)
    if again:
        existing = _rows(_EXISTING, list(again))
        again = _unlike([row[0] for row in existing])
    return [
        Damage.of_none(
            DamageKind.SEARCH,
            f"Event row {key} {state} in the search index: run `convserver verify --repair-derived`.",
        )
        for key, state in again.items()
    ]


def _unlike(keys: Sequence[int]) -> dict[int, str]:
    """Return, by key, how the entries of these events differ from the events."""
    expected = {entry.event_pk: words for entry, words in _expected(keys)}
    stored = dict(_rows(_ENTRIES[connection.vendor], keys))
    wrong = [key for key in keys if expected.get(key) != stored.get(key)]
    return {key: "is not" if key not in stored else "is wrongly" for key in wrong}


def _expected(keys: Sequence[int]) -> list[tuple[IndexEntry, str]]:
    entries = list(indexing.entries_of(list(keys)))
    texts = [" ".join(entry.words) for entry in entries]
    if connection.vendor == "postgresql" and texts:
        with connection.cursor() as cursor:
            cursor.execute(_KEPT, [texts])
            texts = [text for (text,) in cursor.fetchall()]
    return list(zip(entries, texts, strict=True))


def _rows(statement: str, keys: Sequence[int]) -> list[tuple[int, str]]:
    if not keys:
        return []
    with connection.cursor() as cursor:
        cursor.execute(statement.format(keys=", ".join(["%s"] * len(keys))), list(keys))
        return list(cursor.fetchall())


def _left_over() -> Iterator[Damage]:
    """Yield the entries of events that do not exist."""
    key = _KEY[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {key} FROM {TABLE} WHERE NOT EXISTS "
            f"(SELECT 1 FROM {guards.EVENT} AS event WHERE event.id = {TABLE}.{key}) "
            f"LIMIT {PER_CONVERSATION_MAX}"
        )
        keys = [key for (key,) in cursor.fetchall()]
    for key in keys:
        detail = f"The search index has an entry of event row {key}, which does not exist."
        yield Damage.of_none(DamageKind.SEARCH, detail)


def _broken_index() -> Iterator[Damage]:
    """Yield the damage that the engine's own check of the index finds (SQLite)."""
    if connection.vendor != "sqlite":
        return
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {TABLE} ({TABLE}) VALUES ('integrity-check')")
    except Error as error:
        detail = f"SQLite refuses the search index: {type(error).__name__}."
        yield Damage.of_none(DamageKind.SEARCH, detail)


def _wrong_titles(limit: int | None) -> Iterator[Damage]:
    """Yield the titles, of all or of `limit` random conversations, that differ in their index."""
    at_random = "" if limit is None else f"ORDER BY random() LIMIT {limit}"
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH chosen AS (SELECT id, public_id, {IN_CAPITALS[connection.vendor]} AS title "
            f"FROM {guards.CONVERSATION} WHERE title IS NOT NULL AND expires_at IS NULL {at_random}) "
            f"SELECT chosen.id, chosen.public_id FROM chosen LEFT JOIN {guards.TITLE_TEXT} AS entry "
            f"ON entry.{_TITLE_KEY[connection.vendor]} = chosen.id "
            "WHERE (entry.title IS NULL OR entry.title <> chosen.title) AND NOT EXISTS "
            f"(SELECT 1 FROM {guards.TITLE_CHANGE} AS change WHERE change.conversation_id = chosen.id) "
            f"LIMIT {PER_CONVERSATION_MAX}"
        )
        rows = cursor.fetchall()
    for pk, public_id in rows:
        detail = "The title is not in its index as it is: run `convserver verify --repair-derived`."
        yield Damage(DamageKind.TITLE, pk, public_id, None, detail)
