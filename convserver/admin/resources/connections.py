"""Connections: the users in conversations, and their doors."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.cells import column
from convserver.admin.widgets import label
from sessions_app.models import Connection, ConnectionQuerySet

PRESENT, EXPIRED = "present", "expired"


@admin.register(Connection)
class ConnectionAdmin(ReadOnlyAdmin[Connection]):
    """The connections of all doors, the newest first."""

    keyset = ("since", "pk")
    list_display = ("who", "where", "via", "came", "seen", "presence")
    list_filter = (
        filters.form_of(
            presence=filters.choice(
                "Status",
                [(PRESENT, "Connected"), (EXPIRED, "Expired")],
                lambda rows, presence: rows.present() if presence == PRESENT else rows.expired(),
            ),
            user=filters.text("User", "user__username"),
            door=filters.text("Connected via", "door"),
        ),
    )
    list_select_related = ("user", "conversation")
    fields = ("id", *list_display)

    who = column("User", "user.username")
    where = column("Conversation", "conversation", cells.link)
    via = column("Connected via", "door")
    came = column("Since (UTC)", "since", cells.moment)
    seen = column("Last seen (UTC)", "last_seen_at", cells.moment)

    def get_queryset(self, request: HttpRequest) -> ConnectionQuerySet:
        rows: ConnectionQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return rows.with_presence()

    @label("Status", {PRESENT: "success", EXPIRED: ""})
    def presence(self, connection: Connection) -> tuple[str, str]:
        return (PRESENT, "Connected") if connection.is_present else (EXPIRED, "Expired")
