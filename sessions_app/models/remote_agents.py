"""Programs outside this server that play the turns of an agent: who is connected, and in which process."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from conversations.models import Conversation, ConversationRef
from sessions_app.models.live import PRESENCE_S
from sessions_app.processes import Process, is_gone
from sessions_app.shared_clock import was_within

REMOTE_NAME_MAX_LENGTH = 100
FORGOTTEN_AFTER = timedelta(days=30)
"""A program that was not connected for this long is no longer listed."""


class RemoteProgramQuerySet(models.QuerySet["RemoteProgram"]):
    def of(self, user_id: int, name: str) -> Self:
        """Return those of one user's agent: for all conversations, and for single ones."""
        return self.filter(user_id=user_id, name=name)

    def serving(self, conversation: ConversationRef, name: str) -> Self:
        """Return those that may play a conversation's turns, one for this conversation alone first."""
        rows = self.of(conversation.owner_id, name)
        rows = rows.filter(Q(conversation=None) | Q(conversation_id=conversation.pk))
        return rows.order_by(F("conversation_id").asc(nulls_last=True))

    def connected(self) -> Self:
        """Return those that are connected, as far as their processes said lately."""
        return self.with_presence().filter(is_seen=True, gone_at=None)

    def with_presence(self) -> Self:
        """Add `is_seen`: whether the process of each has said lately that it is connected."""
        return self.annotate(is_seen=Q(was_within("seen_at", PRESENCE_S)))

    def expired(self) -> Self:
        """Return those whose last connection ended too long ago to be shown."""
        return self.filter(seen_at__lt=timezone.now() - FORGOTTEN_AFTER)


class RemoteProgram(models.Model):
    """The program of a user's agent, for all of the user's conversations or for one."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    name = models.CharField(max_length=REMOTE_NAME_MAX_LENGTH)
    conversation = models.ForeignKey(Conversation, models.CASCADE, null=True, blank=True, related_name="+")
    """The only conversation that it serves; None for all."""
    number = models.BigIntegerField(default=0)
    """How often a program has connected: an earlier one has lost its place to the last."""
    host = models.TextField(default="", blank=True)
    pid = models.BigIntegerField(default=0)
    process_started = models.FloatField(default=0.0)
    since = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    gone_at = models.DateTimeField(null=True, blank=True)
    """When it disconnected; None while it is connected, or if its process has ended without a word."""

    is_seen: bool

    objects = models.Manager.from_queryset(RemoteProgramQuerySet)()

    class Meta:
        verbose_name = "remote agent"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "name", "conversation"], name="remote_program_once"),
            # The constraint above does not bound rows without a conversation.
            models.UniqueConstraint(
                fields=["user", "name"], condition=Q(conversation=None), name="remote_program_of_all_once"
            ),
        ]

    def __str__(self) -> str:
        return f"remote agent {self.name}"

    @property
    def process(self) -> Process:
        """The process of the server that the program is, or was last, connected to."""
        return Process(self.host, self.pid, self.process_started)

    @property
    def is_connected(self) -> bool:
        """Return whether it is connected, as far as can be known."""
        # A process of another host cannot be looked for: it counts while it said so lately.
        return self.gone_at is None and self.is_seen and not is_gone(self.process)
