"""Connections: the users in conversations with their doors, and the programs that play agents' turns."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin, Row
from convserver.admin.cells import column, label
from sessions_app.models import Connection, RemoteProgram

PRESENT, ABSENT = "present", "expired"
COLOURS = {PRESENT: "success", ABSENT: ""}


class PresenceAdmin(ReadOnlyAdmin[Row]):
    """Rows of what is or was connected, the newest first."""

    keyset = ("since", "pk")
    list_select_related = ("user", "conversation")

    who = column("User", "user.username")
    came = column("Since (UTC)", "since", cells.moment)

    def get_queryset(self, request: HttpRequest) -> Any:
        rows: Any = super().get_queryset(request)
        return rows.with_presence()


@admin.register(Connection)
class ConnectionAdmin(PresenceAdmin[Connection]):
    """The connections of all doors."""

    list_display = ("who", "where", "via", "came", "seen", "presence")
    list_filter = (
        filters.form_of(
            presence=filters.choice(
                "Status",
                [(PRESENT, "Connected"), (ABSENT, "Expired")],
                lambda rows, presence: rows.present() if presence == PRESENT else rows.expired(),
            ),
            user=filters.text("User", "user__username"),
            door=filters.text("Connected via", "door"),
        ),
    )
    fields = ("id", *list_display)

    where = column("Conversation", "conversation", cells.link)
    via = column("Connected via", "door")
    seen = column("Last seen (UTC)", "last_seen_at", cells.moment)

    @label("Status", COLOURS)
    def presence(self, connection: Connection) -> tuple[str, str]:
        return (PRESENT, "Connected") if connection.is_present else (ABSENT, "Expired")


@admin.register(RemoteProgram)
class RemoteProgramAdmin(PresenceAdmin[RemoteProgram]):
    """The programs outside the server that have connected lately, and to which process."""

    list_display = fields = ("name", "who", "where", "came", "seen", "presence", "process_shown")
    list_filter = (
        filters.form_of(user=filters.text("User", "user__username"), name=filters.text("Name", "name")),
    )

    where = column("Conversation", "conversation", cells.link, empty="All")
    seen = column("Last seen (UTC)", "seen_at", cells.moment)
    # A program that left keeps the process that it was connected to last.
    process_shown = column("Process", lambda program: cells.process(program.pid, program.host))

    @label("Status", COLOURS)
    def presence(self, program: RemoteProgram) -> tuple[str, str]:
        return (PRESENT, "Connected") if program.is_connected else (ABSENT, "Not connected")
