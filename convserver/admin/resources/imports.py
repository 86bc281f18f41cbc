"""Imports of uploaded files: those of all users, with their reports; staff upload for others."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin, may_change
from convserver.admin.filters import FormFilter, choice_field, text_field
from convserver.admin.widgets import label
from convserver.web.settings_pages.imports import counts_of, formats, state_words
from sessions_app.imports.uploads import pieces, runs
from sessions_app.models import ImportRun, ImportRunQuerySet, ImportState

COLOURS: dict[str, str] = {
    ImportState.UPLOADING: "",
    ImportState.WAITING: "warning",
    ImportState.RUNNING: "info",
    ImportState.DONE: "success",
    ImportState.FAILED: "danger",
    ImportState.CANCELLED: "",
}


class ImportFilterForm(forms.Form):
    """What imports can be looked for by."""

    user = text_field("Owner")
    state = choice_field("State", ImportState.choices)


class ImportFilter(FormFilter[ImportRunQuerySet]):
    """Imports by owner and state."""

    form_class = ImportFilterForm

    def narrowed(self, rows: ImportRunQuerySet, wanted: dict[str, Any]) -> ImportRunQuerySet:
        """Return the imports with the wanted facts."""
        columns = {"user": "user__username", "state": "state"}
        return rows.filter(**{column: wanted[name] for name, column in columns.items() if name in wanted})


@admin.register(ImportRun)
class ImportRunAdmin(ReadOnlyAdmin[ImportRun]):
    """The imports of all users, the newest first."""

    list_display = ("file_name", "user", "how_far", "what", "size_shown", "counted", "began", "ended")
    list_filter = (ImportFilter,)
    list_select_related = ("user", "by")
    actions = ("cancel",)
    fields = (
        "file_name",
        "user",
        "by",
        "state_shown",
        "problem",
        "what",
        "size_shown",
        "received_shown",
        "report",
        "began",
        "ended",
        "process_shown",
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Let staff upload for others who may add imports."""
        return request.user.has_perm("sessions_app.add_importrun")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Say whether the visitor may cancel imports."""
        return may_change(request, ImportRun)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the form whose script uploads the file in pieces, by the native REST door."""
        if not self.has_add_permission(request):
            return super().add_view(request, form_url, extra_context)  # which refuses
        context = {
            **self.admin_site.each_context(request),
            "title": "Import a file",
            "opts": self.opts,
            "formats": formats(),
            "piece_bytes": pieces.PIECE_MAX_BYTES,
            "max_bytes": runs.max_bytes(),
            "list_address": reverse("admin:sessions_app_importrun_changelist"),
        }
        return TemplateResponse(request, "admin/import_file.html", context)

    @admin.action(description="Cancel", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[ImportRun]) -> None:
        """Cancel those that have not ended."""
        cancelled = [run for run in queryset if run.is_open]
        for run in cancelled:
            runs.cancel(run)
        self.message_user(request, f"Imports cancelled: {len(cancelled)}.")

    @label("State", COLOURS)
    def how_far(self, run: ImportRun) -> tuple[str, str]:
        """How far it is."""
        return run.state, state_words(run)

    @admin.display(description="State")
    def state_shown(self, run: ImportRun) -> str:
        """How far it is, on its page."""
        return state_words(run)

    @admin.display(description="Format")
    def what(self, run: ImportRun) -> str:
        """Which format it is of."""
        return run.format or "to be found out"

    @admin.display(description="Bytes")
    def size_shown(self, run: ImportRun) -> str:
        """How large the file is."""
        return cells.number(run.size)

    @admin.display(description="Bytes received")
    def received_shown(self, run: ImportRun) -> str:
        """How much of it is here."""
        return cells.number(run.received)

    @admin.display(description="Conversations")
    def counted(self, run: ImportRun) -> str:
        """How many conversations it has looked at."""
        failed = f", {cells.number(run.failed)} failed" if run.failed else ""
        return cells.number(run.conversations) + failed

    @admin.display(description="Report")
    def report(self, run: ImportRun) -> SafeString:
        """The table of the report."""
        return format_html_join(
            "", "{}: {}<br>", ((line.what, cells.number(line.number)) for line in counts_of(run))
        )

    @admin.display(description="Began (UTC)")
    def began(self, run: ImportRun) -> SafeString | None:
        """When its upload began."""
        return cells.moment(run.created_at)

    @admin.display(description="Ended (UTC)")
    def ended(self, run: ImportRun) -> SafeString | None:
        """When it ended."""
        return cells.moment(run.ended_at)

    @admin.display(description="Process")
    def process_shown(self, run: ImportRun) -> str | None:
        """Which process runs it, or ran it last."""
        return f"{run.pid} on {run.host.partition(' ')[0]}" if run.pid else None
