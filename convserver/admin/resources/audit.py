"""The audit of the admin: an entry in its log for staff, and a line in the server's log."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from conversations.models import Conversation
from conversations.server_log import ids_of, log_act
from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin, log_row
from convserver.admin.cells import column


def record(request: HttpRequest, conversations: Sequence[Conversation], action: str) -> None:
    """Add an entry to the admin's log for each conversation, and a line to the server's log."""
    _enter(request, conversations, action)
    for conversation in conversations:
        log_act(f"Admin: {action}", by_user=request.user.pk, **ids_of(conversation.ref))


def record_change(request: HttpRequest, row: Model, action: str) -> None:
    """Store an entry about a change of a row that is no conversation."""
    _enter(request, [row], action)
    log_row(request, row, action)


def _enter(request: HttpRequest, rows: Sequence[Model], action: str) -> None:
    if rows:
        LogEntry.objects.log_actions(request.user.pk, rows, CHANGE, action)  # type: ignore[arg-type]


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyAdmin[LogEntry]):
    """Everything that was done and read in the admin, newest first."""

    list_display = fields = ("when", "user", "what", "kind", "action")
    list_filter = (
        filters.form_of(
            who=filters.text("User", "user__username"),
            action=filters.text("Action contains", "change_message__icontains"),
            since=filters.since("action_time"),
            until=filters.until("action_time"),
        ),
    )
    list_select_related = ("user", "content_type")

    when = column("Time (UTC)", "action_time", cells.moment)
    kind = column("Type", "content_type", lambda kind: str(kind.name), empty="?")
    action = column("Action", lambda entry: entry.get_change_message() or entry.get_action_flag_display())

    @admin.display(description="Object")
    def what(self, entry: LogEntry) -> SafeString | str:
        name = cells.cut(entry.object_repr) or "?"
        url = None if entry.is_deletion() else entry.get_admin_url()
        return format_html('<a class="admin-link" href="{}">{}</a>', url, name) if url else name
