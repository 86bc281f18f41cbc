"""Remote agents: which programs outside the server play turns, and to which process they are connected."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.filters import FormFilter, text_field
from convserver.admin.widgets import label
from sessions_app.models import RemoteProgram, RemoteProgramQuerySet

CONNECTED, AWAY = "connected", "away"


class RemoteProgramFilterForm(forms.Form):
    """What remote agents can be looked for by."""

    user = text_field("User")
    name = text_field("Name")


class RemoteProgramFilter(FormFilter[RemoteProgramQuerySet]):
    """Remote agents by user and name."""

    form_class = RemoteProgramFilterForm

    def narrowed(self, rows: RemoteProgramQuerySet, wanted: dict[str, Any]) -> RemoteProgramQuerySet:
        """Return the remote agents with the wanted facts."""
        columns = {"user": "user__username", "name": "name"}
        return rows.filter(**{column: wanted[name] for name, column in columns.items() if name in wanted})


@admin.register(RemoteProgram)
class RemoteProgramAdmin(ReadOnlyAdmin[RemoteProgram]):
    """The programs that have connected lately, the newest first."""

    keyset = ("since", "pk")
    list_display = ("name", "who", "where", "came", "seen", "presence", "process_shown")
    list_filter = (RemoteProgramFilter,)
    list_select_related = ("user", "conversation")
    fields = ("name", "who", "where", "came", "seen", "presence", "process_shown")

    def get_queryset(self, request: HttpRequest) -> RemoteProgramQuerySet:
        """Return the remote agents, each with whether it was seen lately."""
        rows: RemoteProgramQuerySet = super().get_queryset(request)  # type: ignore[assignment]
        return rows.with_presence()

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return a remote agent; a text that no column could hold is nobody's id."""
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    @admin.display(description="User")
    def who(self, program: RemoteProgram) -> str:
        """Whose it is."""
        return program.user.get_username()

    @admin.display(description="Conversation")
    def where(self, program: RemoteProgram) -> SafeString | str:
        """Which conversation it plays in."""
        return "All" if program.conversation is None else cells.link(program.conversation)

    @admin.display(description="Since (UTC)")
    def came(self, program: RemoteProgram) -> SafeString | None:
        """When it connected last."""
        return cells.moment(program.since)

    @admin.display(description="Last seen (UTC)")
    def seen(self, program: RemoteProgram) -> SafeString | None:
        """When its process last said that it is there."""
        return cells.moment(program.seen_at)

    @label("Status", {CONNECTED: "success", AWAY: ""})
    def presence(self, program: RemoteProgram) -> tuple[str, str]:
        """Whether it is connected."""
        return (CONNECTED, "Connected") if program.is_connected else (AWAY, "Not connected")

    @admin.display(description="Process")
    def process_shown(self, program: RemoteProgram) -> SafeString | None:
        """Which process of the server it is, or was last, connected to."""
        if not program.pid:
            return None
        return cells.narrow(
            f"{program.pid} on {program.host}", f"{program.pid} on {program.host.partition(' ')[0]}"
        )
