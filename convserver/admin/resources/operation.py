"""Processes with their heartbeats, and backups."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.overview import lasting, size
from convserver.admin.widgets import ModelAdmin, label
from sessions_app.models import BackupRecord, ProcessRecord
from sessions_app.operation import heartbeats

ALIVE, GONE, ENDED = "alive", "gone", "ended"


@admin.register(ProcessRecord)
class ProcessRecordAdmin(ReadOnlyAdmin[ProcessRecord]):
    """Servers and workers, newest first; the row of one that is gone can be removed."""

    list_display = ("state", "role", "host_shown", "pid", "version", "began", "seen", "ended")
    list_display_links = None
    fields = ("state", "role", "host_shown", "pid", "version", "began", "seen", "ended")

    def has_delete_permission(self, request: HttpRequest, obj: ProcessRecord | None = None) -> bool:
        """Allow it by permission: the row of a process that is alive comes back with its next heartbeat."""
        return ModelAdmin.has_delete_permission(self, request, obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ProcessRecord]:
        """Return the rows with the time since their last heartbeat."""
        return super().get_queryset(request).with_age()  # type: ignore[attr-defined, no-any-return]

    @label("State", {ALIVE: "success", GONE: "danger", ENDED: ""})
    def state(self, record: ProcessRecord) -> tuple[str, str]:
        """Whether it runs."""
        if record.ended_at is not None:
            return ENDED, "Stopped"
        return (ALIVE, "Running") if heartbeats.is_alive(record) else (GONE, "Gone")

    @admin.display(description="Host")
    def host_shown(self, record: ProcessRecord) -> str:
        return record.host_name

    @admin.display(description="Began (UTC)")
    def began(self, record: ProcessRecord) -> SafeString | None:
        return cells.moment(record.began_at)

    @admin.display(description="Last heartbeat (UTC)")
    def seen(self, record: ProcessRecord) -> SafeString | None:
        return cells.moment(record.seen_at)

    @admin.display(description="Stopped (UTC)")
    def ended(self, record: ProcessRecord) -> SafeString | None:
        return cells.moment(record.ended_at)


@admin.register(BackupRecord)
class BackupRecordAdmin(ReadOnlyAdmin[BackupRecord]):
    """Every run of `convserver backup`, newest first."""

    list_display = ("ended", "outcome_shown", "verified", "place", "host", "size_shown", "took", "detail")
    list_display_links = None
    fields = ("ended", "outcome_shown", "verified", "place", "host", "size_shown", "took", "detail")

    @admin.display(description="Ended (UTC)")
    def ended(self, record: BackupRecord) -> SafeString | None:
        return cells.moment(record.ended_at)

    @admin.display(description="Result")
    def outcome_shown(self, record: BackupRecord) -> str:
        return record.get_outcome_display()

    @admin.display(description="Verified")
    def verified(self, record: BackupRecord) -> str:
        return {None: "Not tried", True: "Whole", False: "Not as its manifest says"}[record.is_verified]

    @admin.display(description="Size")
    def size_shown(self, record: BackupRecord) -> str:
        return size(record.size)

    @admin.display(description="Took")
    def took(self, record: BackupRecord) -> str:
        return lasting(record.duration)
