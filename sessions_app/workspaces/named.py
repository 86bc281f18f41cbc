"""The conversation that a program means by a working directory alone."""

from __future__ import annotations

import os
import posixpath

from conversations.access import Visitor
from conversations.models import Conversation, ConversationQuerySet, ConversationRef


def newest_of(user: Visitor, path: str | None) -> ConversationRef | None:
    """Return the same of all conversations that the user may reach."""
    return newest(Conversation.objects.visible_to(user), path)


def newest(rows: ConversationQuerySet, path: str | None) -> ConversationRef | None:
    """Return the newest of these conversations whose start named a directory that has this path.

    Without a path, any directory; None if there is none.
    """
    if path is None:
        rows = rows.filter(agent_setup__isnull=False)
    elif not _can_be_named(path):
        return None
    else:
        rows = rows.filter(agent_setup__workspace__working_dir__in=sorted(_spellings(path)))
    found = rows.order_by("-created_at", "-pk").first()
    return None if found is None else found.ref


def _can_be_named(path: str) -> bool:
    """Return whether a start can have named a directory above a path: each one is looked for."""
    levels_most = 64
    if path.count("/") > levels_most:
        return False
    try:
        return len(path.encode()) <= os.pathconf("/", "PC_PATH_MAX")
    except UnicodeEncodeError:  # no database takes it
        return False


def _spellings(path: str) -> set[str]:
    """Return all ways in which a start may have named a directory above a path, or the path itself."""
    plain = posixpath.normpath("/" + path.lstrip("/"))
    found: set[str] = set()
    while plain != "/":
        found |= {plain, plain[1:], f"{plain}/", f"{plain[1:]}/"}
        plain = posixpath.dirname(plain)
    return found
