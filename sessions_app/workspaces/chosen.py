"""Directories of the user's own that conversations may be started in, and which one a conversation has."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from django.conf import settings

from conversations.events import ConversationRef
from sessions_app.models import Workspace
from sessions_app.sandbox import roots
from sessions_app.workspaces.beneath import PathRefused, closing, shown


def offered() -> list[Path]:
    """Return the roots, each followed by the directories in it: no links, and none with a hidden name."""
    looked_at_most, offered_most = 10_000, 200
    listed: list[Path] = []
    for root in settings.CONFIGURATION.workspace_roots:
        try:
            with os.scandir(root) as entries:
                names = [
                    each.name
                    for each in islice(entries, looked_at_most)
                    if not each.name.startswith(".") and each.name.isprintable()
                    if each.is_dir(follow_symlinks=False)
                ]
        except OSError:  # it was removed
            continue
        listed += [root, *(root / name for name in sorted(names)[:offered_most])]
    return listed


def choose(conversation: ConversationRef, path: str) -> None:
    """Set a directory of the user's own for a new conversation. Raise PathRefused."""
    Workspace.objects.create(conversation_id=conversation.pk, users_directory=str(found(path)))


def found(path: str) -> Path:
    """Return the directory in which a conversation is to work, without links. Raise PathRefused."""
    directory = _found(path)
    if directory is None:
        named = ", ".join(map(str, settings.CONFIGURATION.workspace_roots))
        where = f"They are in {named}." if named else "This server has none (CONVSERVER_WORKSPACE_ROOTS)."
        raise PathRefused(f"{shown(path)} is no directory in which conversations may work. {where}")
    return directory


def choose_known(conversation: ConversationRef, path: object) -> None:
    """Do the same if that is possible; other paths, which every start of a V1 client names, mean nothing."""
    if isinstance(path, str) and (directory := _found(path)) is not None:
        Workspace.objects.create(conversation_id=conversation.pk, users_directory=str(directory))


def directory_of(conversation: ConversationRef) -> str:
    """Return the path of the user's own directory in which a conversation works; empty for none."""
    rows = Workspace.objects.filter(conversation_id=conversation.pk)
    return rows.values_list("users_directory", flat=True).first() or ""


def _found(path: str) -> Path | None:
    """Return the directory that a path names, without links; None if it is below no root."""
    try:
        path.encode()  # no database takes halves of characters
        directory = Path(path).resolve(strict=True)
        if not path.startswith("/") or roots.root_of(directory) is None:
            return None
        with closing(roots.opened(directory)):
            return directory
    except (OSError, RuntimeError, ValueError):  # links in a circle; a null character
        return None
