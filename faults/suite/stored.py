"""What a store holds at the end of a round, read without the server; its digests are computed anew."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from faults.checker.history import Did, Record

EVENTS = """
    SELECT c.public_id, e.seq, e.event_id, e.payload, e.digest, e.epoch, e.text
    FROM conversations_event e JOIN conversations_conversation c ON c.id = e.conversation_id
    WHERE c.public_id LIKE {0} ORDER BY c.public_id, e.seq
"""
HEADS = "SELECT public_id, next_seq, head_digest FROM conversations_conversation WHERE public_id LIKE {0}"
MADE = "SELECT public_id, title FROM conversations_conversation WHERE title LIKE {0}"
GUARDS = ("event_refuse_update", "event_refuse_delete", "conversation_refuse_fall")
"""Triggers without which history could be lost."""


class Row(NamedTuple):
    """An event as the log has it."""

    talk: str
    seq: int
    event_id: str
    payload: str
    digest: str
    epoch: int | None
    text: str


class Store(NamedTuple):
    """All that a round has left."""

    events: list[Row]
    heads: dict[str, tuple[int, str]]
    """By conversation: the next number, and the digest of the last event."""
    made: list[tuple[str, str]]
    """Conversations that were created under a key, and the key."""
    triggers: frozenset[str]
    """Those of the database, by name."""


def records(store: Store) -> Iterator[Record]:
    """Yield what the checker compares a history with."""
    for row in store.events:
        yield Record(Did.STORED, row.talk, row.event_id, row.seq)
    for talk, key in store.made:
        yield Record(Did.MADE, talk, key)


def faults_in(store: Store) -> Iterator[str]:
    """Yield a sentence for each missing guard, wrong digest, head, or event of a loop that was replaced."""
    for guard in GUARDS:
        if guard not in store.triggers:
            yield f"the guard {guard} is missing"
    logs: dict[str, list[Row]] = defaultdict(list)
    for row in store.events:
        logs[row.talk].append(row)
    for talk, (next_seq, head_digest) in store.heads.items():
        digest = ""
        for row in logs[talk]:
            digest = chained(digest, row)
            if digest != row.digest:
                yield f"{talk}: the digest of event {row.seq} does not continue that of the one before"
                break
        if (next_seq, head_digest) != (len(logs[talk]), logs[talk][-1].digest if logs[talk] else ""):
            yield f"{talk}: the head is at event {next_seq}, and the log has {len(logs[talk])}"
        yield from _written_by_former_loops(talk, logs[talk])


def chained(before: str, row: Row) -> str:
    """Return the digest that the protocol promises: of the digest before, the seq, the id and the payload."""
    name = row.event_id.encode()
    text = b"%s %d %d %s%s" % (before.encode(), row.seq, len(name), name, row.payload.encode())
    return hashlib.sha256(text).hexdigest()


def _written_by_former_loops(talk: str, rows: Iterable[Row]) -> Iterator[str]:
    newest = 0
    for row in rows:
        if row.epoch is not None:
            if row.epoch < newest:
                yield f"{talk}: event {row.seq} was written by loop {row.epoch} after loop {newest}"
            newest = max(newest, row.epoch)


def of_rows(
    events: Iterable[Any], heads: Iterable[Any], made: Iterable[Any], triggers: Iterable[Any]
) -> Store:
    """Return what four queries have found."""
    return Store(
        [Row(*row) for row in events],
        {talk: (next_seq, digest) for talk, next_seq, digest in heads},
        [(talk, key) for talk, key in made],
        frozenset(name for (name,) in triggers),
    )
