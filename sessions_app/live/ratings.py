"""What users think of an agent's answers: one opinion of each answer, beside the log that it is about."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, TypedDict

from django.db import transaction
from django.utils import timezone

from conversations.events import ConversationRef, Kind
from conversations.exceptions import ConversationError, EventNotFound
from conversations.models import Event
from conversations.redaction import secrets
from sessions_app.live.status import iso
from sessions_app.models import Feedback, Polarity


class NotAnAnswer(ConversationError):
    """The event is no answer of the agent."""

    code: ClassVar[str] = "not_an_answer"


class Rating(TypedDict):
    seq: int | None
    """None is the whole conversation, which only V0 clients rate."""
    polarity: str
    reason: str
    created_at: str


def rate(conversation: ConversationRef, seq: int, *, polarity: Polarity, reason: str) -> Rating:
    """Store the opinion of one answer, instead of the former one. Raise EventNotFound, NotAnAnswer."""
    require_answer(conversation, seq)
    with transaction.atomic():
        told = {"polarity": polarity, "reason": reason, "created_at": timezone.now()}
        told |= secrets.masked_columns(conversation.owner_id, conversation.pk, {"reason": reason})
        row, _ = Feedback.objects.update_or_create(conversation_id=conversation.pk, seq=seq, defaults=told)
    return _shown(row)


def take_back(conversation: ConversationRef, seq: int) -> None:
    """Remove the opinion of one answer, if there is one."""
    Feedback.objects.of(conversation).filter(seq=seq).delete()


def rating_of(conversation: ConversationRef, seq: int) -> Rating | None:
    row = Feedback.objects.of(conversation).filter(seq=seq).first()
    return None if row is None else _shown(row)


def ratings_of(conversation: ConversationRef, *, after: int, limit: int) -> list[Rating]:
    """Return a page of the opinions of answers, in the order of the log."""
    rows = Feedback.objects.of(conversation).filter(seq__gt=after).order_by("seq")
    return [_shown(row) for row in rows[:limit]]


def exported(conversation: ConversationRef) -> list[Rating]:
    """Return all opinions, those of the whole conversation as well, by one query."""
    return [_shown(row) for row in Feedback.objects.of(conversation).order_by("seq", "pk")]


def polarities(conversation: ConversationRef, seqs: Collection[int]) -> dict[int, str]:
    """Return, by seq, how those of these events are rated that are."""
    rows = Feedback.objects.of(conversation).filter(seq__in=seqs)
    return {row.seq: row.polarity for row in rows if row.seq is not None}


def require_answer(conversation: ConversationRef, seq: int) -> str:
    """Return the text of an answer. Raise EventNotFound, NotAnAnswer."""
    found = Event.objects.of(conversation).with_seqs([seq])
    row = found.values_list("kind", "source", "text").first()
    if row is None:
        raise EventNotFound(f"There is no event at place {seq}.")
    kind, source, text = row
    if kind != Kind.MESSAGE or source == "user":
        raise NotAnAnswer("Only the answers of agents are rated.")
    return text


def _shown(row: Feedback) -> Rating:
    return {
        "seq": row.seq,
        "polarity": row.polarity,
        "reason": row.reason,
        "created_at": iso(row.created_at),
    }
