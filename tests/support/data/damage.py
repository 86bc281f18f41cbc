"""Damage to a store, as somebody with the database's password can do it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection

from conversations.engines import guards
from conversations.log.append import chain
from conversations.models import Conversation, ConversationRef, DamageKind, Event, Occasion
from conversations.verification import records
from conversations.verification.damage import Damage
from conversations.verification.records import RunRecord
from sessions_app.verification.checks import Check, checks, run


@contextmanager
def unguarded(*names: str) -> Iterator[None]:
    """Remove guards and put them back, so that what is left of it is the damage alone."""
    on = {name: f" ON {guards.TABLE_OF[name]}" if connection.vendor == "postgresql" else "" for name in names}
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"DROP TRIGGER {name}{on[name]}")
    try:
        yield
    finally:
        guards.install(connection)


def change(conversation: ConversationRef, at: int, /, **columns: Any) -> None:
    with unguarded("event_refuse_update"):
        assert Event.objects.of(conversation).filter(seq=at).update(**columns)


def flip(conversation: ConversationRef, at: int, column: str = "payload") -> None:
    """Put a byte that is no UTF-8 into a column of an event, as a damaged disk does to a file of SQLite."""
    bad = f"CAST(substr(CAST({column} AS BLOB), 1, 3) || X'FF' || substr(CAST({column} AS BLOB), 5) AS TEXT)"
    with unguarded("event_refuse_update"), connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE conversations_event SET {column} = {bad} WHERE conversation_id = %s AND seq = %s",
            [conversation.pk, at],
        )


def set_counter(conversation: ConversationRef, value: int) -> None:
    """Set the counter of a log, also to less than it is."""
    with unguarded("conversation_refuse_fall"):
        Conversation.objects.filter(pk=conversation.pk).update(next_seq=value)


def rewrite(conversation: ConversationRef, seq: int, payload: str) -> None:
    """Change a payload, and compute all digests after it anew."""
    digest = ""
    with unguarded("event_refuse_update"):
        for event in Event.objects.of(conversation).oldest_first():
            text = payload if event.seq == seq else event.payload
            digest = chain(digest, seq=event.seq, event_id=event.event_id, payload=text)
            rows = Event.objects.filter(pk=event.pk)
            rows.update(payload=text, size=len(text.encode()), digest=digest)
    Conversation.objects.filter(pk=conversation.pk).update(head_digest=digest)


def verified(made: Sequence[Check] | None = None, **options: Any) -> RunRecord:
    """Verify the store, all of it unless checks are named, and record what was found."""
    record = records.begin(Occasion.COMMAND, "all", host="here", pid=1)
    for _ in run(record, list(made) if made is not None else checks(**options), options.get("rows")):
        pass
    record.end()
    return record


def places(found: Sequence[Damage]) -> list[tuple[str, str, int | None]]:
    """Return what is damaged, of which conversation, and where."""
    return [(damage.problem.value, damage.conversation_id, damage.seq) for damage in found]


def damaged(conversation: ConversationRef) -> list[tuple[DamageKind, int | None]]:
    """Return what the conversation's readers are told."""
    row = Conversation.objects.get(pk=conversation.pk)
    return [(place["problem"], place["seq"]) for place in row.damage or ()]


def other_text(payload: str) -> str:
    return json.dumps(json.loads(payload)).replace("hello", "hallo", 1)
