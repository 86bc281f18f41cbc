"""Connections: who is at which conversation now, and by which door."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.filters import ANY, FormFilter, choice_field, text_field
from convserver.admin.widgets import label
from sessions_app.models import Connection, ConnectionQuerySet

PRESENT, EXPIRED = "present", "expired"


class ConnectionFilterForm(forms.Form):
    """What connections can be looked for by."""

    presence = choice_field("Status", [ANY, (PRESENT, "Connected"), (EXPIRED, "Expired")])
    user = text_field("User")
    door = text_field("Connected via")


class ConnectionFilter(FormFilter[ConnectionQuerySet]):
    """Connections by user, door and presence."""

    form_class = ConnectionFilterForm

    def narrowed(self, rows: ConnectionQuerySet, wanted: dict[str, Any]) -> ConnectionQuerySet:
        """Return the connections with the wanted facts."""
        if "presence" in wanted:
            rows = rows.present() if wanted["presence"] == PRESENT else rows.expired()
        if "user" in wanted:
            rows = rows.filter(user__username=wanted["user"])
        if "door" in wanted:
            rows = rows.filter(door=wanted["door"])
        return rows


@admin.register(Connection)
class ConnectionAdmin(ReadOnlyAdmin[Connection]):
    """The connections of all doors, the newest first."""

    keyset = ("since", "pk")
    list_display = ("who", "where", "via", "came", "seen", "presence")
    list_filter = (ConnectionFilter,)
    list_select_related = ("user", "conversation")
    fields = ("id", "who", "where", "via", "came", "seen", "presence")

    def get_queryset(self, request: HttpRequest) -> ConnectionQuerySet:
        """Return the connections, each with whether it counts as present."""
        rows: ConnectionQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return rows.with_presence()

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return a connection; a text that no column could hold is nobody's id."""
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    @admin.display(description="User")
    def who(self, connection: Connection) -> str:
        """Who it is."""
        return connection.user.get_username()

    @admin.display(description="Conversation")
    def where(self, connection: Connection) -> SafeString:
        """Which conversation it is at."""
        return cells.link(connection.conversation)

    @admin.display(description="Connected via")
    def via(self, connection: Connection) -> str:
        """By which of the server's interfaces."""
        return connection.door

    @admin.display(description="Since (UTC)")
    def came(self, connection: Connection) -> SafeString | None:
        """When it came."""
        return cells.moment(connection.since)

    @admin.display(description="Last seen (UTC)")
    def seen(self, connection: Connection) -> SafeString | None:
        """When its process last said that it is there."""
        return cells.moment(connection.last_seen_at)

    @label("Status", {PRESENT: "success", EXPIRED: ""})
    def presence(self, connection: Connection) -> tuple[str, str]:
        """Whether it counts as present."""
        return (PRESENT, "Connected") if connection.is_present else (EXPIRED, "Expired")
