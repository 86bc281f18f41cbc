"""Runs of git on a workspace and its shadow repository, which lies in the place of all workspaces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.capacity.shares import Shares
from sessions_app.checkpoints.environment import ENVIRONMENT, SHADOW, SOURCE
from sessions_app.checkpoints.errors import GONE, CheckpointFailed, CheckpointGone, raise_for
from sessions_app.checkpoints.script import SCRIPT
from sessions_app.event_loops import PerEventLoop, uncancelled
from sessions_app.sandbox import choice
from sessions_app.sandbox.base import HOME, NoSandbox
from sessions_app.shell_commands.piped import PipedProgram
from sessions_app.workspace_git.program import GitOutput
from sessions_app.workspaces import records

_runs = PerEventLoop(lambda: Shares(4, of_one=2))
_long_runs = PerEventLoop(lambda: Shares(2, of_one=1))


class ShadowPlaces(NamedTuple):
    """What a run sees."""

    workspace: Path
    shadow: Path
    source: Path | None = None
    """The shadow repository of another conversation."""


def are_kept() -> bool:
    """Return whether checkpoints are made: the operator wants them, and a sandbox runs git. It may block."""
    if not settings.CONFIGURATION.sandbox_settings.checkpoints:
        return False
    try:
        return not choice.chosen().asks_first
    except NoSandbox:
        return False


def require_sandbox() -> None:
    """Raise CheckpointFailed if no checkpoints are made. It may block."""
    if not are_kept():
        raise CheckpointFailed(
            "Files are kept and restored by git in a sandbox. This server has none, or keeps no checkpoints."
        )


def most() -> tuple[str, str]:
    """Return how many files a workspace may have, and how deep, as arguments of the script."""
    limits = records.limits()
    return str(limits.files), str(limits.depth + 1)


async def run(
    conversation: ConversationRef,
    action: str,
    *arguments: str,
    timeout_s: float,
    source: ConversationRef | None = None,
) -> str:
    """Return what an action of the script prints. A cancellation ends it.

    Raise NoSandbox, StoreUnavailable, ConversationNotFound, ConversationBusy, CheckpointGone or
    CheckpointFailed.
    """
    # Not the places of the runs that show changes: a copy may take long, and people wait for those.
    # Nor those of turns, which go on after their checkpoints.
    runs = _long_runs if action in ("copy", "prune") else _runs
    async with runs.get().place(conversation.owner_id):
        places = await astore.change(_places, conversation, source)
        return await _run(places, [action, *arguments], timeout_s)


async def _run(places: ShadowPlaces, arguments: Sequence[str], timeout_s: float) -> str:
    further = {SHADOW: places.shadow} | ({SOURCE: places.source} if places.source else {})
    out, err = GitOutput(1_000_000), GitOutput(2_000)
    # The shadow repository is bound for this run alone, so that nothing of an agent ever sees it.
    starting = PipedProgram.started(
        ["bash", "-c", SCRIPT, "git", *arguments],
        places.workspace,
        home=HOME,
        environment=ENVIRONMENT,
        further=further,
    )
    program = await uncancelled(starting)
    ending = asyncio.ensure_future(program.ended(timeout_s=timeout_s, stdout=out.take, stderr=err.take))
    try:
        end = await asyncio.shield(ending)
    except asyncio.CancelledError:
        # The server stops, or a client has left: the next run begins where this one was.
        program.kill()
        await asyncio.gather(ending, return_exceptions=True)
        raise
    if end.has_timed_out:
        raise CheckpointFailed(f"There are too many files: git was not done after {timeout_s:.0f} s.")
    said = program.reason or err.whole.decode(errors="replace").strip()
    raise_for(end.exit_code, said)
    # A path may have any bytes.
    return out.whole.decode(errors="surrogateescape").strip()


def _places(conversation: ConversationRef, source: ConversationRef | None) -> ShadowPlaces:
    """Return what a run sees, and make what is missing. Raise CheckpointGone if the source has nothing."""
    workspace = records.directory_of(conversation)
    of_source = None if source is None else records.shadow_of(source)
    if source is not None and of_source is None:
        raise CheckpointGone(GONE)
    return ShadowPlaces(workspace, records.made_shadow_of(conversation), of_source)
