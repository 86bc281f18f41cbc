"""The list of what staff did: the entries of the admin's log."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.utils.html import format_html
from django.utils.safestring import SafeString

from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.cells import column


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
