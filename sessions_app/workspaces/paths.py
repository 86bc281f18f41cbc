"""The paths by which clients of both wires name files, and what they mean in a workspace."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from conversations.models import ConversationRef, Version
from sessions_app.models import AgentSetup
from sessions_app.workspaces import chosen
from sessions_app.workspaces.beneath import PathRefused, shown
from sessions_app.workspaces.tree import is_draft

HOME = "/workspace"
"""The directory that V0 clients, and all uploads of the web clients, begin paths with."""
PROJECT = "/workspace/project"
"""The directory that V1 clients begin them with, unless their start named another one."""


def relative(conversation: ConversationRef, path: str) -> str:
    """Return a path in the conversation's workspace: relative, without `..`, empty for the workspace itself.

    An absolute path begins with the directory that the conversation's start named, or with the one that the
    clients of the wires have by default. Raise PathRefused for another one.
    """
    if "\0" in path or any(map(is_draft, path.split("/"))):
        raise PathRefused(f"{shown(path)} cannot be the name of a file.")
    # POSIX leaves two slashes at the beginning to the system, so normpath keeps them.
    plain = posixpath.normpath("/" + path.lstrip("/") if path.startswith("/") else path or ".")
    if not plain.startswith("/"):
        if plain.split("/")[0] == "..":
            raise PathRefused(f"{shown(path)} leads out of the workspace.")
        return "" if plain == "." else plain
    homes = list(dict.fromkeys(_homes(conversation)))
    for home in homes:
        if plain == home or plain.startswith(home.rstrip("/") + "/"):
            return plain[len(home.rstrip("/")) :].strip("/")
    raise PathRefused(f"{shown(path)} is outside the workspace, whose paths begin with {homes[0]}.")


def home_of(conversation: ConversationRef) -> str:
    """Return the absolute path by which clients of the conversation name its workspace."""
    return next(_homes(conversation))


def absolute(conversation: ConversationRef, path: str) -> str:
    """Return a path as clients name it, absolute and without `..`; an absolute one keeps its beginning."""
    if path.startswith("/"):
        return posixpath.normpath("/" + path.lstrip("/"))
    return posixpath.normpath(posixpath.join(home_of(conversation), path))


def _homes(conversation: ConversationRef) -> Iterator[str]:
    if own := chosen.directory_of(conversation):
        yield own
    if conversation.version == Version.V1:
        setups = AgentSetup.objects.filter(conversation_id=conversation.pk)
        for workspace in setups.values_list("workspace", flat=True):
            named = workspace.get("working_dir") if isinstance(workspace, dict) else None
            if isinstance(named, str) and "\0" not in named:
                yield posixpath.normpath("/" + named.lstrip("/"))
        yield PROJECT
    yield HOME
