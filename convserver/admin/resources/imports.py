"""Imports of uploaded files of all users; staff upload for others."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin, staff_page
from convserver.admin.cells import column, label
from convserver.web.settings_pages.imports import counts_of, formats, state_words
from sessions_app.imports.uploads import pieces, runs
from sessions_app.models import ImportRun, ImportState

COLOURS: dict[str, str] = {
    ImportState.UPLOADING: "",
    ImportState.WAITING: "warning",
    ImportState.RUNNING: "info",
    ImportState.DONE: "success",
    ImportState.FAILED: "danger",
    ImportState.CANCELLED: "",
}


@admin.register(ImportRun)
class ImportRunAdmin(ReadOnlyAdmin[ImportRun]):
    """The imports of all users, the newest first."""

    list_display = ("file_name", "user", "how_far", "what", "size_shown", "counted", "began", "ended")
    list_filter = (
        filters.form_of(
            user=filters.text("Owner", "user__username"),
            state=filters.choice("State", ImportState.choices, "state"),
        ),
    )
    list_select_related = ("user", "by")
    actions = ("cancel",)
    fields = (
        *("file_name", "user", "by", "state_shown", "problem", "what", "size_shown", "received_shown"),
        *("report", "began", "ended", "process_shown"),
    )

    state_shown = column("State", state_words)
    what = column("Format", lambda run: run.format or "to be found out")
    size_shown = column("Bytes", "size", cells.number)
    received_shown = column("Bytes received", "received", cells.number)
    began = column("Began (UTC)", "created_at", cells.moment)
    ended = column("Ended (UTC)", "ended_at", cells.moment)
    process_shown = column("Process", lambda run: cells.process(run.pid, run.host))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.add_importrun")

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the form whose script uploads the file in pieces, by the native REST door."""
        if not self.has_add_permission(request):
            return super().add_view(request, form_url, extra_context)  # which refuses
        return staff_page(
            request,
            self,
            "admin/import_file.html",
            "Import a file",
            formats=formats(),
            piece_bytes=pieces.PIECE_MAX_BYTES,
            max_bytes=runs.max_bytes(),
            list_address=cells.list_of(ImportRun),
        )

    @admin.action(description="Cancel", permissions=["steer"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[ImportRun]) -> None:
        cancelled = [run for run in queryset if run.is_open]
        for run in cancelled:
            runs.cancel(run)
        self.message_user(request, f"Imports cancelled: {len(cancelled)}.")

    @label("State", COLOURS)
    def how_far(self, run: ImportRun) -> tuple[str, str]:
        return run.state, state_words(run)

    @admin.display(description="Conversations")
    def counted(self, run: ImportRun) -> str:
        failed = f", {cells.number(run.failed)} failed" if run.failed else ""
        return cells.number(run.conversations) + failed

    @admin.display(description="Report")
    def report(self, run: ImportRun) -> SafeString:
        return format_html_join(
            "", "{}: {}<br>", ((line.what, cells.number(line.number)) for line in counts_of(run))
        )
