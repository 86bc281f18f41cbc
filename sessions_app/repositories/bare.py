"""The server's own bare repositories, each beside a workspace for the time of one clone or push."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.capacity.shares import Shares
from sessions_app.event_loops import PerEventLoop, uncancelled
from sessions_app.repositories.own_git import OwnGit
from sessions_app.workspaces import records

_runs = PerEventLoop(lambda: Shares(4, of_one=2))


class Bare:
    """A bare repository, with the workspace that it is for."""

    def __init__(self, path: Path, workspace: Path, held: tuple[int, int]) -> None:
        """`held` is how many bytes and files the workspace holds."""
        self.path = path
        self.workspace = workspace
        self.held = held
        # What is fetched is charged to the workspace, into which it goes next.
        self.git = OwnGit(path, max(records.limits().bytes - held[0], 0))

    def packs(self) -> list[Path]:
        """Return its packs."""
        return sorted((self.path / "objects" / "pack").glob("*.pack"))


@asynccontextmanager
async def opened(conversation: ConversationRef, *, fills: bool) -> AsyncIterator[Bare]:
    """Give an empty bare repository, which is removed at the end, with all that a dead server has left.

    With `fills`, what is fetched goes into the workspace, and needs room there. Raise ConversationNotFound,
    StoreUnavailable or RepositoryFailed.
    """
    # Git may use a gigabyte of memory for each.
    async with _runs.get().place(conversation.owner_id), _opened(conversation, fills) as bare:
        yield bare


@asynccontextmanager
async def _opened(conversation: ConversationRef, fills: bool) -> AsyncIterator[Bare]:
    bare = await astore.change(_made, conversation, fills)
    try:
        await bare.git.run("init", "--quiet", "--bare", "--template=", "--initial-branch=none")
        yield bare
    finally:
        # Also if the turn was cancelled: packs are large.
        await uncancelled(asyncio.to_thread(shutil.rmtree, bare.path, ignore_errors=True))


def _made(conversation: ConversationRef, fills: bool) -> Bare:
    workspace, path = records.made_beside(conversation)
    with records.opened(conversation) as tree:
        # Nothing bounds a directory of the user's own, so that a clone may be as large as a workspace.
        is_counted = fills and tree is not None and not tree.is_users
        return Bare(path, workspace, tree.measured() if tree is not None and is_counted else (0, 0))
