"""Runs of the tool calls of turns that have not ended: what may be run, and what was started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar, Self
from uuid import UUID, uuid5

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from conversations.models import Conversation, ConversationRef

_KEYS = UUID("ccd2f566-2016-5a33-9b18-3fff41139904")


class RunState(models.TextChoices):
    """Where a call is between its event and that of its result."""

    WAITING = "waiting", "waits for approval"
    APPROVED = "approved", "may be run"
    REJECTED = "rejected", "must not be run"
    STARTED = "started", "was started"
    UNKNOWN = "unknown", "was started by a process that is gone"
    ANSWERED = "answered", "has its result"


class UnknownAnswer(models.TextChoices):
    """The answers to the question what became of a call whose outcome is unknown."""

    RUN_AGAIN = "run_again", "run it again"
    DONE = "done", "it has taken effect"
    SKIP = "skip", "go on without it"


class ToolRunQuerySet(models.QuerySet["ToolRun"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return those of a conversation's present turn, in the order of their calls."""
        # By the loop's turn: what an earlier one may have left does not count.
        present = F("conversation__loop__turn_id")
        return self.filter(conversation_id=conversation.pk, turn_id=present).order_by("call_seq")

    def of_all_turns(self, conversation: ConversationRef) -> Self:
        """Return those of a conversation, whatever became of their turns."""
        return self.filter(conversation_id=conversation.pk)

    def of_call(self, conversation: ConversationRef, call_id: str) -> Self:
        """Return the run of the call with this event id, if it has one."""
        return self.filter(conversation_id=conversation.pk, call_id=call_id)

    def waiting(self) -> Self:
        """Return those whose calls wait for approval."""
        return self.filter(state=RunState.WAITING)

    def unknown(self) -> Self:
        """Return those that a person is to be asked about."""
        return self.filter(state=RunState.UNKNOWN)

    def enter(self, state: RunState, *, reason: str = "") -> None:
        """Change the state of all."""
        self.order_by().update(state=state, reason=reason, updated_at=timezone.now())


class ToolRun(models.Model):
    """One tool call of a turn that has begun and not ended; the end of the turn removes it.

    A call without a row was stored and not started.
    """

    # The unique constraint begins with it.
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="tool_runs", db_index=False)
    turn_id = models.TextField()
    call_id = models.TextField()
    """The id of the call's event."""
    call_seq = models.BigIntegerField()
    tool_call_id = models.TextField(default="", blank=True)
    name = models.TextField()
    digest = models.CharField(max_length=64, default="", blank=True)
    """Of the name and the stored arguments; empty until they were approved or started."""
    state = models.CharField(max_length=10, choices=RunState)
    reason = models.TextField(default="", blank=True)
    """What the user said with the decision."""
    source = models.CharField(max_length=64, null=True, blank=True, default=None)
    """What offers the tool, as AllowedTool has it; null if each of its calls asks."""
    key = models.CharField(max_length=36)
    """The idempotency key."""
    epoch = models.BigIntegerField(default=0)
    """Of the loop that started it last; 0 if none has."""
    # Tells a start whose commit is repeated from another one.
    attempt = models.CharField(max_length=36, default="", blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = models.Manager.from_queryset(ToolRunQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "call_id"], name="tool_run_once"),
        ]

    def __str__(self) -> str:
        return f"run of {self.name} in {self.conversation_id}"


class AllowedFor(models.TextChoices):
    """Where the calls of an allowed tool no longer ask."""

    CONVERSATION = "conversation", "in this conversation"
    USER = "user", "in all conversations of its owner"


class AllowedTool(models.Model):
    """A tool whose calls run without approval, because a user has allowed that until it is withdrawn."""

    # The unique constraints begin with it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="allowed_tools", db_index=False
    )
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, null=True, blank=True, related_name="allowed_tools"
    )
    """The only one in which it is allowed; null for all of the user's."""
    name = models.TextField()
    source = models.CharField(max_length=64)
    """What offers it: another server's tool of the same name is another tool."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["user", "conversation", "name", "source"], name="allowed_tool_in_one"
            ),
            models.UniqueConstraint(
                fields=["user", "name", "source"],
                condition=Q(conversation=None),
                name="allowed_tool_in_all",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} is allowed for {self.user_id}"


def idempotency_key(conversation: ConversationRef, call_id: str) -> str:
    """Return the key of a call, which is derived from its conversation and its event id."""
    # Derived, so that it is the same however often the call is run.
    return str(uuid5(_KEYS, json.dumps([conversation.public_id, call_id])))


def digest_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest of what a call does."""
    # Sorted: a stored call comes back from JSON, which keeps no meaning in the order of members.
    return sha256(json.dumps([name, arguments], sort_keys=True, default=str).encode()).hexdigest()
