"""Retention: policies, with what each would delete now, and the record of purges."""

from __future__ import annotations

from itertools import islice
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from conversations.models import Purge
from convserver.admin import cells
from convserver.admin.base import ListAdmin, ReadOnlyAdmin
from convserver.admin.widgets import label
from sessions_app.models import RetentionPolicy
from sessions_app.retention import policies

COUNTED_MAX = 10_000
"""A policy's matches are counted up to this many."""
NAMED_MAX = 20


@admin.register(RetentionPolicy)
class RetentionPolicyAdmin(ListAdmin[RetentionPolicy]):
    """Rules by which conversations are deleted; what one would delete is shown before it is in force."""

    list_display = ("name", "older_than_days", "label", "owner", "is_enabled")
    list_select_related = ("owner",)
    autocomplete_fields = ("owner",)
    fields = ("name", "older_than_days", "label", "owner", "is_enabled", "matches", "first_matches", "then")
    readonly_fields = ("matches", "first_matches", "then")

    def get_fields(self, request: HttpRequest, obj: RetentionPolicy | None = None) -> Any:
        """Show what a stored policy matches."""
        return self.fields if obj else tuple(name for name in self.fields if name not in self.readonly_fields)

    @admin.display(description="Would delete now")
    def matches(self, policy: RetentionPolicy) -> str:
        """How many conversations the stored policy matches, whether it is in force or not."""
        count = sum(1 for _ in islice(_matched(policy), COUNTED_MAX + 1))
        return f"More than {COUNTED_MAX:,}" if count > COUNTED_MAX else cells.number(count)

    @admin.display(description="The oldest of them")
    def first_matches(self, policy: RetentionPolicy) -> str:
        """The ids of some."""
        return ", ".join(islice(_matched(policy), NAMED_MAX)) or "None"

    @admin.display(description="After that")
    def then(self, policy: RetentionPolicy) -> str:
        """What becomes of what it deletes."""
        days = settings.CONFIGURATION.deleted_days
        return f"Can be restored for {days} days, then purged" if days else "Can be restored for ever"


def _matched(policy: RetentionPolicy) -> Any:
    for window in policies.windows(policies.matched(policy)):
        yield from window.values_list("public_id", flat=True)


@admin.register(Purge)
class PurgeAdmin(ReadOnlyAdmin[Purge]):
    """What was removed for good, the newest first: who, when, why and how much."""

    list_display = ("conversation_id_shown", "requested_by", "reason", "state", "started", "events", "size")
    list_select_related = ("conversation",)
    fields = (
        "conversation_id_shown",
        "requested_by",
        "reason",
        "state",
        "started",
        "finished",
        "erased",
        "events",
        "size",
        "digest",
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody may: the permission to add purges is that to purge conversations, from their pages."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Purge]:
        """Return the rows with the ids of their conversations."""
        return super().get_queryset(request).select_related("conversation")

    @admin.display(description="Conversation")
    def conversation_id_shown(self, purge: Purge) -> SafeString:
        """The tombstone."""
        return cells.link(purge.conversation, purge.conversation.public_id)

    @label("State", {"running": "warning", "purged": "info", "erased": "success"})
    def state(self, purge: Purge) -> tuple[str, str]:
        """How far it is."""
        if purge.finished_at is None:
            return "running", "Running"
        return ("erased", "Erased from files") if purge.erased_at else ("purged", "Purged")

    @admin.display(description="Started (UTC)")
    def started(self, purge: Purge) -> SafeString | None:
        """When it began."""
        return cells.moment(purge.started_at)

    @admin.display(description="Finished (UTC)")
    def finished(self, purge: Purge) -> SafeString | None:
        """When the last row was removed."""
        return cells.moment(purge.finished_at)

    @admin.display(description="Erased from files (UTC)")
    def erased(self, purge: Purge) -> SafeString | None:
        """When the files of the database were cleaned."""
        return cells.moment(purge.erased_at)

    @admin.display(description="Bytes")
    def size(self, purge: Purge) -> str:
        """How much it has removed."""
        return cells.number(purge.bytes)

    @admin.display(description="Checksum of the log")
    def digest(self, purge: Purge) -> SafeString:
        """The digest of the last event."""
        return cells.code(purge.last_digest)
