"""The attached programs and their processes, as rows that all processes of the server see."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from conversations import live
from conversations.events import ConversationRef
from sessions_app.models import RemoteProgram
from sessions_app.processes import Process


class ProgramAttachment(NamedTuple):
    """The attachment of one program, valid until a later program has its name."""

    pk: int
    number: int

    @property
    def group(self) -> str:
        return group_of(self.pk)


def group_of(pk: int) -> str:
    """Return the hint group for news about later programs and messages."""
    return f"remote.{pk}"


def attach(
    user_id: int, name: str, conversation: ConversationRef | None, process: Process
) -> ProgramAttachment:
    """Attach a program, in place of an earlier one of this name, whose process is notified."""
    place: dict[str, Any] = {"user_id": user_id, "name": name}
    place["conversation_id"] = None if conversation is None else conversation.pk
    here = {"host": process.host, "pid": process.pid, "process_started": process.started}
    with transaction.atomic():
        RemoteProgram.objects.filter(user_id=user_id).expired().delete()
        row, _ = RemoteProgram.objects.get_or_create(**place)
        rows = RemoteProgram.objects.filter(pk=row.pk)
        rows.update(number=F("number") + 1, since=Now(), seen_at=Now(), gone_at=None, **here)
        found = ProgramAttachment(row.pk, rows.values_list("number", flat=True).get())
    live.announce(found.group, {"kind": "attached", "number": found.number})
    return found


def is_current(attachment: ProgramAttachment) -> bool:
    """Return whether no later program has attached, and record that this one is present."""
    # One statement: a later program cannot come between the question and the record.
    rows = RemoteProgram.objects.filter(pk=attachment.pk, number=attachment.number)
    return bool(rows.update(seen_at=Now()))


def detach(attachment: ProgramAttachment) -> None:
    """Detach the program, unless a later one has its place."""
    rows = RemoteProgram.objects.filter(pk=attachment.pk, number=attachment.number)
    rows.update(seen_at=Now(), gone_at=Now())


def connected(conversation: ConversationRef, name: str) -> RemoteProgram | None:
    """Return the program for this conversation's turns, if one is connected to any process."""
    rows = RemoteProgram.objects.serving(conversation, name).connected()
    return next((row for row in rows if row.is_connected), None)


def connected_names(user_id: int, conversation: ConversationRef | None) -> set[str]:
    """Return the names of a user's connected programs for a conversation, or for all conversations."""
    only = Q(conversation=None)
    if conversation is not None:
        only |= Q(conversation_id=conversation.pk)
    rows = RemoteProgram.objects.filter(only, user_id=user_id).connected()
    return {row.name for row in rows if row.is_connected}


def was_connected(conversation: ConversationRef, name: str) -> bool:
    """Return whether a program for this conversation's turns was connected, as far as rows are kept."""
    return RemoteProgram.objects.serving(conversation, name).exists()
