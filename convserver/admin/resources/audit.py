"""Who did and read what in the admin: an entry in its log, for staff, and a line in the server's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from conversations.models import Conversation
from conversations.server_log import ids_of, log_act
from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin, log_row
from convserver.admin.filters import FormFilter, date_field, text_field
from convserver.admin.periods import in_period


def record(request: HttpRequest, conversations: Sequence[Conversation], action: str) -> None:
    """Note that this member of staff did something with these conversations, or read them.

    One entry each, under the conversation's history, for every request: nobody has to guess what
    counts as one visit.
    """
    _enter(request, conversations, action)
    for conversation in conversations:
        log_act(f"Admin: {action}", by_user=request.user.pk, **ids_of(conversation.ref))


def record_change(request: HttpRequest, row: Model, action: str) -> None:
    """Note that this member of staff changed a row that is no conversation."""
    _enter(request, [row], action)
    log_row(request, row, action)


def _enter(request: HttpRequest, rows: Sequence[Model], action: str) -> None:
    if rows:
        LogEntry.objects.log_actions(request.user.pk, rows, CHANGE, action)  # type: ignore[arg-type]


class LogFilterForm(forms.Form):
    """What entries can be looked for by."""

    who = text_field("User")
    action = text_field("Action contains")
    since = date_field("From (UTC)")
    until = date_field("Through (UTC)")


class LogFilter(FormFilter[QuerySet[LogEntry]]):
    """Entries by who, what and when."""

    form_class = LogFilterForm

    def narrowed(self, rows: QuerySet[LogEntry], wanted: dict[str, Any]) -> QuerySet[LogEntry]:
        """Return the entries with the wanted facts."""
        if "who" in wanted:
            rows = rows.filter(user__username=wanted["who"])
        if "action" in wanted:
            rows = rows.filter(change_message__icontains=wanted["action"])
        return in_period(rows, "action_time", wanted)


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyAdmin[LogEntry]):
    """Everything that was done and read in the admin, newest first."""

    list_display = ("when", "user", "what", "kind", "action")
    list_filter = (LogFilter,)
    list_select_related = ("user", "content_type")
    fields = ("when", "user", "what", "kind", "action")

    @admin.display(description="Time (UTC)")
    def when(self, entry: LogEntry) -> SafeString | None:
        """When it was done."""
        return cells.moment(entry.action_time)

    @admin.display(description="Object")
    def what(self, entry: LogEntry) -> SafeString | str:
        """What it was done to, as it was called then."""
        name = cells.cut(entry.object_repr) or "?"
        url = None if entry.is_deletion() else entry.get_admin_url()
        return format_html('<a class="admin-link" href="{}">{}</a>', url, name) if url else name

    @admin.display(description="Type")
    def kind(self, entry: LogEntry) -> str:
        """What kind of row that is."""
        return str(entry.content_type.name) if entry.content_type else "?"

    @admin.display(description="Action")
    def action(self, entry: LogEntry) -> str:
        """What was done."""
        return entry.get_change_message() or entry.get_action_flag_display()
