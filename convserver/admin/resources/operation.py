"""Processes with their heartbeats, and backups."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.cells import column, label
from convserver.admin.widgets import ModelAdmin
from sessions_app.models import BackupRecord, ProcessRecord
from sessions_app.operation import heartbeats

ALIVE, GONE, ENDED = "alive", "gone", "ended"


@admin.register(ProcessRecord)
class ProcessRecordAdmin(ReadOnlyAdmin[ProcessRecord]):
    """Servers and workers, newest first; the row of one that is gone can be removed."""

    list_display = fields = ("state", "role", "host_shown", "pid", "version", "began", "seen", "ended")
    list_display_links = None

    host_shown = column("Host", "host_name")
    began = column("Began (UTC)", "began_at", cells.moment)
    seen = column("Last heartbeat (UTC)", "seen_at", cells.moment)
    ended = column("Stopped (UTC)", "ended_at", cells.moment)

    def has_delete_permission(self, request: HttpRequest, obj: ProcessRecord | None = None) -> bool:
        # The next heartbeat of a process that runs brings its row back.
        return ModelAdmin.has_delete_permission(self, request, obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ProcessRecord]:
        return super().get_queryset(request).with_age()  # type: ignore[attr-defined, no-any-return]

    @label("State", {ALIVE: "success", GONE: "danger", ENDED: ""})
    def state(self, record: ProcessRecord) -> tuple[str, str]:
        if record.ended_at is not None:
            return ENDED, "Stopped"
        return (ALIVE, "Running") if heartbeats.is_alive(record) else (GONE, "Gone")


@admin.register(BackupRecord)
class BackupRecordAdmin(ReadOnlyAdmin[BackupRecord]):
    """Every run of `convserver backup`, newest first."""

    list_display = fields = (
        "ended",
        "outcome_shown",
        "verified",
        "place",
        "host",
        "size_shown",
        "took",
        "detail",
    )
    list_display_links = None

    ended = column("Ended (UTC)", "ended_at", cells.moment)
    outcome_shown = column("Result", lambda record: record.get_outcome_display())
    size_shown = column("Size", "size", cells.size)
    took = column("Took", "duration", cells.lasting)

    @admin.display(description="Verified")
    def verified(self, record: BackupRecord) -> str:
        return {None: "Not tried", True: "Whole", False: "Not as its manifest says"}[record.is_verified]
