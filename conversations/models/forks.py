"""Forks that are not whole yet."""

from __future__ import annotations

from django.db import models

from conversations.models.conversations import Conversation


class UnfinishedFork(models.Model):
    """A fork whose events are still being copied.

    Until they all are, its conversation is hidden as a purged one is, and its log is the beginning of its
    source's: `next_seq` events of `through` + 1.
    """

    conversation = models.OneToOneField(Conversation, models.PROTECT, primary_key=True, related_name="+")
    through = models.BigIntegerField()  # the seq of its last event, once it is whole
    # When a process copied of it last, by the database's clock; None before the first.
    touched_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"unfinished fork {self.conversation_id}"
