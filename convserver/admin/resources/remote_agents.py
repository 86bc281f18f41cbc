"""Remote agents: which programs outside the server play turns, and to which process they are connected."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.cells import column
from convserver.admin.widgets import label
from sessions_app.models import RemoteProgram, RemoteProgramQuerySet

CONNECTED, AWAY = "connected", "away"


@admin.register(RemoteProgram)
class RemoteProgramAdmin(ReadOnlyAdmin[RemoteProgram]):
    """The programs that have connected lately, the newest first."""

    keyset = ("since", "pk")
    list_display = fields = ("name", "who", "where", "came", "seen", "presence", "process_shown")
    list_filter = (
        filters.form_of(user=filters.text("User", "user__username"), name=filters.text("Name", "name")),
    )
    list_select_related = ("user", "conversation")

    who = column("User", "user.username")
    where = column("Conversation", "conversation", cells.link, empty="All")
    came = column("Since (UTC)", "since", cells.moment)
    seen = column("Last seen (UTC)", "seen_at", cells.moment)
    # A program that left keeps the process that it was connected to last.
    process_shown = column("Process", lambda program: cells.process(program.pid, program.host))

    def get_queryset(self, request: HttpRequest) -> RemoteProgramQuerySet:
        rows: RemoteProgramQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return rows.with_presence()

    @label("Status", {CONNECTED: "success", AWAY: ""})
    def presence(self, program: RemoteProgram) -> tuple[str, str]:
        return (CONNECTED, "Connected") if program.is_connected else (AWAY, "Not connected")
