"""Which programs can be followed, and which of them a user wants to be followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.conf import settings

from conversations import live
from conversations.exceptions import ConversationError
from sessions_app.imports.ways import WAYS, Way
from sessions_app.models import FollowedProgram

SWITCHED = "followed"
"""The hint that a program was switched on or off."""
TITLES = {"claude-code": "Claude Code", "codex": "Codex", "hermes-webui": "hermes-webui"}


class NotFollowed(ConversationError):
    """No program of this name can be followed, or none at all where users have accounts."""

    code = "invalid"


class Followable(NamedTuple):
    """A program that can be followed, and whether it is."""

    name: str
    title: str
    path: str
    """Where it keeps its conversations."""
    row: FollowedProgram
    """Not stored if it was never switched on."""


def are_offered() -> bool:
    """Return whether the server's computer is the user's own: what is in its home directory is theirs."""
    return bool(settings.CONFIGURATION.auth == "local")


def ways() -> list[Way]:
    """Return the formats of programs that write where they are known to."""
    return [way for way in WAYS.values() if way.default_path and way.format and way.format.files]


def of_user(user_id: int) -> list[Followable]:
    """Return all programs that can be followed; none where none is offered."""
    if not are_offered():
        return []
    rows = {row.format: row for row in FollowedProgram.objects.of(user_id)}
    return list(_found(user_id, rows))


def switch(user_id: int, name: str, *, is_on: bool) -> None:
    """Switch the following of a program on or off. Raise NotFollowed."""
    if not are_offered() or name not in {way.name for way in ways()}:
        raise NotFollowed(f"{name!r} cannot be followed here.")
    FollowedProgram.objects.update_or_create(
        user_id=user_id, format=name, defaults={"is_on": is_on, "problem": "", "looked_at": None}
    )
    live.tell_listeners({"kind": SWITCHED})


def _found(user_id: int, rows: dict[str, FollowedProgram]) -> Iterator[Followable]:
    for way in ways():
        row = rows.get(way.name) or FollowedProgram(user_id=user_id, format=way.name)
        yield Followable(way.name, TITLES.get(way.name, way.name), way.default_path or "", row)
