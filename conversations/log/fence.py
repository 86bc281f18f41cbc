"""The fence: a loop that another one has replaced (a zombie) can no longer write.

Each loop that takes a conversation raises `Conversation.loop_epoch`; its events name its epoch.
"""

from __future__ import annotations

from conversations.exceptions import Fenced


def broken(written_by: int, newest: int) -> Fenced | None:
    """Return why a loop of the first epoch cannot write; None if it is the newest one."""
    if written_by == newest:
        return None
    return Fenced(f"The loop of epoch {written_by} was replaced by that of epoch {newest}.")
