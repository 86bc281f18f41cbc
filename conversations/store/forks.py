"""A fork: a conversation that begins with a copy of another's log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from conversations import access, provisional_titles
from conversations.access import Visitor
from conversations.events import Kind
from conversations.exceptions import ConversationNotFound, EventNotFound
from conversations.log import sql
from conversations.models import (
    LAST_MESSAGE_MAX_LENGTH,
    Conversation,
    ConversationRef,
    Event,
    new_public_id,
    normal_id,
)
from conversations.redaction import secrets
from conversations.storage import quotas
from conversations.store import copying, creation

# A fork of at most this many events and bytes is made in one transaction.
AT_ONCE_EVENTS = 5_000
AT_ONCE_BYTES = 32 * 1024 * 1024
_SAME = ("version", "repository", "branch", "provider", "pr_number", "llm_model", "expires_at")
_COUNTED = ("accumulated_cost", "prompt_tokens", "completion_tokens", "total_tokens")


def fork(
    user: Visitor,
    source: ConversationRef,
    *,
    conversation_id: str | None = None,
    through: int | None = None,
    title: str | None = None,
    tags: Mapping[str, str] | None = None,
    keep_metrics: bool = False,
) -> ConversationRef:
    """Create a conversation of the user with a copy of another's log, up to and including `through`.

    The events keep their ids, places and digests. Nothing in the copy asks for an answer, and its
    totals start at zero unless `keep_metrics`. A long fork is hidden and incomplete when this returns:
    `copying` continues it. Raise ConversationExists for a taken id, EventNotFound for a missing `through`.
    """
    public_id = normal_id(conversation_id) if conversation_id else new_public_id()
    owner_id = access.pk_of(user)
    quotas.admit_conversation(owner_id)
    with transaction.atomic():
        original = Conversation.objects.active().filter(pk=source.pk).first()
        if original is None:
            raise ConversationNotFound("Conversation not found.")
        chosen = {"title": title, "tags": dict(tags or {})}
        columns = secrets.masked_columns(source.owner_id, source.pk, chosen)
        columns |= _beginning(original, through=through, keep_metrics=keep_metrics)
        last = columns["forked_at"]
        quotas.admit_bytes(owner_id, lambda: _size_of(source, through=last))
        if last < AT_ONCE_EVENTS and _size_of(source, through=last) <= AT_ONCE_BYTES:
            row = creation.insert(public_id=public_id, owner_id=owner_id, **columns)
            # Unchanged: a digest covers only the events before, so it stays right in the copy.
            if sql.copy_events(source.pk, row.pk, through=last) != last + 1:
                raise EventNotFound("The events of the conversation were removed meanwhile.")
        else:
            columns |= {"next_seq": 0, "head_digest": ""}
            row = creation.insert_hidden(public_id=public_id, owner_id=owner_id, **columns)
            copying.hide(row, through=last)
        if title and title == original.title and provisional_titles.is_made(source.pk):
            provisional_titles.note_derived(row.pk)
    return row.ref


def _beginning(source: Conversation, *, through: int | None, keep_metrics: bool) -> dict[str, Any]:
    """Return the columns of a new fork whose log is the source's up to and including `through`.

    No event of the fork asks for an answer. Inputs that no turn has answered wait until a run is requested,
    as the last event always may. Raise EventNotFound if there is no event at `through`.
    """
    last = source.next_seq - 1 if through is None else through
    if not -1 <= last < source.next_seq:
        raise EventNotFound(f"There is no event at place {through}.")
    answered = max(-1, min(source.answered_through, last - 1))
    return {
        **{name: getattr(source, name) for name in (*_SAME, *(_COUNTED if keep_metrics else ()))},
        **_end_of_log(source, last),
        "forked_from_id": source.pk,
        "forked_at": last,
        "next_seq": last + 1,
        "asked_through": answered,
        "answered_through": answered,
        "updated_at": max(timezone.now(), source.updated_at),
    }


def _end_of_log(source: Conversation, last: int) -> dict[str, Any]:
    events = Event.objects.of(source).through(last)
    digest = events.newest_first().values_list("digest", flat=True).first()
    said = events.filter(kind=Kind.MESSAGE, hidden=False).newest_first()
    text, at = said.values_list("text", "received_at").first() or ("", None)
    return {
        "head_digest": digest or "",
        "last_message": text[:LAST_MESSAGE_MAX_LENGTH],
        "last_message_at": at,
    }


def _size_of(source: ConversationRef, *, through: int) -> int:
    found = Event.objects.of(source).through(through).aggregate(bytes=Sum("size"))
    return found["bytes"] or 0
