"""What a store holds at the end of a round, read without the server; its digests are computed anew."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from faults.checker.history import Did, Record

SAID = "said-"
"""With this begins every message of a client whose id the server chooses: its first word is its name."""
MADE_PREFIX = "made-"
"""With this begins every key under which a conversation is created; it is its title as well."""
EVENTS = """
    SELECT c.public_id, e.seq, e.event_id, e.payload, e.digest, e.epoch, e.text
    FROM conversations_event e JOIN conversations_conversation c ON c.id = e.conversation_id
    WHERE c.public_id LIKE {0} OR c.title LIKE {1} ORDER BY c.public_id, e.seq
"""
HEADS = """
    SELECT public_id, next_seq, head_digest FROM conversations_conversation
    WHERE purged_at IS NULL AND (public_id LIKE {0} OR title LIKE {1})
"""
MADE = """
    SELECT c.public_id, c.title, s.public_id, c.forked_at
    FROM conversations_conversation c LEFT JOIN conversations_conversation s ON s.id = c.forked_from_id
    WHERE c.title LIKE {0}
"""
REMOVING = """
    SELECT c.public_id FROM conversations_purge p
    JOIN conversations_conversation c ON c.id = p.conversation_id
    WHERE p.finished_at IS NULL AND c.public_id LIKE {0}
"""
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

    @property
    def name(self) -> str:
        """What clients know it by: the first word of what one has said, or the event's id."""
        return self.text.partition(" ")[0] if self.text.startswith(SAID) else self.event_id


class Made(NamedTuple):
    """A conversation whose id the server has chosen."""

    talk: str
    key: str
    """The key under which it was created: its title."""
    source: str | None
    """What it is a fork of."""
    forked_at: int | None


class Store(NamedTuple):
    """All that a round has left."""

    events: list[Row]
    heads: dict[str, tuple[int, str]]
    """By conversation: the next number, and the digest of the last event."""
    made: list[Made]
    removing: list[str]
    """Conversations of which a purge is not finished."""
    triggers: frozenset[str]
    """Those of the database, by name."""


def records(store: Store) -> Iterator[Record]:
    """Yield what the checker compares a history with."""
    made = {each.talk for each in store.made}
    said: dict[str, list[str]] = defaultdict(list)
    for row in store.events:
        if row.talk not in made:
            yield Record(Did.STORED, row.talk, row.name, row.seq)
        elif row.text.startswith(SAID):
            said[row.talk].append(row.name)
    for each in store.made:
        yield Record(Did.MADE, each.talk, each.key, -1, " ".join(said[each.talk]))
    for talk in store.removing:
        yield Record(Did.REMOVING, talk, "")


def faults_in(store: Store, *, secret: str = "") -> Iterator[str]:
    """Yield a sentence for each missing guard, wrong digest or head, event of a loop that was replaced, wrong
    copy in a fork, and stored secret.
    """
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
    for made in store.made:
        yield from _copied_otherwise(made, logs)
    for row in store.events:
        if secret and (secret in row.payload or secret in row.text):
            yield f"{row.talk}: event {row.seq} holds a secret"


def _copied_otherwise(made: Made, logs: dict[str, list[Row]]) -> Iterator[str]:
    """Compare the beginning of a fork with its source."""
    if made.source is None or made.forked_at is None:
        return
    copied = [row[1:] for row in logs[made.talk][: made.forked_at + 1]]
    if copied != [row[1:] for row in logs[made.source][: made.forked_at + 1]]:
        yield f"{made.talk}: the copy of {made.source} through event {made.forked_at} is not the same"


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


Question = tuple[str, *tuple[object, ...]]
"""A statement, in which `{0}` and so on stand for the values that follow."""
Ask = Callable[[Sequence[Question]], list[list[tuple[Any, ...]]]]
"""Returns the rows of several statements, which all see the same moment."""


def read(ask: Ask, triggers: str, *, talks: str, creations: str) -> Store:
    """Return what is stored of conversations whose ids begin with `talks`, and titles with `creations`."""
    ids, titles = f"{talks}%", f"{creations}%"
    events, heads, made, removing, names = ask(
        [(EVENTS, ids, titles), (HEADS, ids, titles), (MADE, titles), (REMOVING, ids), (triggers,)]
    )
    return Store(
        [Row(*row) for row in events],
        {talk: (next_seq, digest) for talk, next_seq, digest in heads},
        [Made(*row) for row in made],
        [talk for (talk,) in removing],
        frozenset(name for (name,) in names),
    )
