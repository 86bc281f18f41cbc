"""Retention: policies, with what each would delete now, and the record of purges."""

from __future__ import annotations

from itertools import islice
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest

from conversations.models import Purge
from convserver.admin import cells
from convserver.admin.base import ListAdmin, ReadOnlyAdmin
from convserver.admin.cells import column, label
from convserver.pagination import COUNTED_MAX
from sessions_app.models import RetentionPolicy
from sessions_app.retention import policies


@admin.register(RetentionPolicy)
class RetentionPolicyAdmin(ListAdmin[RetentionPolicy]):
    """Rules that delete conversations; each shows what it would delete before it is enabled."""

    list_display = ("name", "older_than_days", "label", "owner", "is_enabled")
    list_select_related = ("owner",)
    autocomplete_fields = ("owner",)
    fields = ("name", "older_than_days", "label", "owner", "is_enabled", "matches", "first_matches", "then")
    readonly_fields = ("matches", "first_matches", "then")

    def get_fields(self, request: HttpRequest, obj: RetentionPolicy | None = None) -> Any:
        return self.fields if obj else tuple(name for name in self.fields if name not in self.readonly_fields)

    @admin.display(description="Would delete now")
    def matches(self, policy: RetentionPolicy) -> str:
        count = sum(1 for _ in islice(_matched(policy), COUNTED_MAX + 1))
        return cells.bounded(count, COUNTED_MAX).capitalize()

    @admin.display(description="The oldest of them")
    def first_matches(self, policy: RetentionPolicy) -> str:
        return ", ".join(islice(_matched(policy), cells.LISTED_MAX)) or "None"

    @admin.display(description="After that")
    def then(self, policy: RetentionPolicy) -> str:
        days = settings.CONFIGURATION.deleted_days
        return f"Can be restored for {days} days, then purged" if days else "Can be restored without limit"


def _matched(policy: RetentionPolicy) -> Any:
    # Window by window, as the policy itself works: the first matches come without reading all.
    for window in policies.windows(policies.matched(policy)):
        yield from window.values_list("public_id", flat=True)


@admin.register(Purge)
class PurgeAdmin(ReadOnlyAdmin[Purge]):
    """All purges, the newest first."""

    list_display = ("conversation_id_shown", "requested_by", "reason", "state", "started", "events", "size")
    list_select_related = ("conversation",)
    fields = (*list_display[:5], "finished", "erased", "events", "size", "digest")

    conversation_id_shown = column("Conversation", "conversation", lambda row: cells.link(row, row.public_id))
    started = column("Started (UTC)", "started_at", cells.moment)
    finished = column("Finished (UTC)", "finished_at", cells.moment)
    erased = column("Erased from files (UTC)", "erased_at", cells.moment)
    size = column("Bytes", "bytes", cells.number)
    digest = column("Checksum of the log", "last_digest", cells.code)

    @label("State", {"running": "warning", "purged": "info", "erased": "success"})
    def state(self, purge: Purge) -> tuple[str, str]:
        if purge.finished_at is None:
            return "running", "Running"
        return ("erased", "Erased from files") if purge.erased_at else ("purged", "Purged")
