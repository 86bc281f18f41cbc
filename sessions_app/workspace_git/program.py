"""Runs of git in a sandbox, bounded in time and output."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from conversations.exceptions import ConversationError
from sessions_app.capacity.shares import Shares
from sessions_app.event_loops import PerEventLoop, uncancelled
from sessions_app.sandbox import choice
from sessions_app.sandbox.base import NoSandbox
from sessions_app.shell_commands.piped import PipedProgram
from sessions_app.workspace_git.script import ENVIRONMENT, SCRIPT, ScriptExit
from sessions_app.workspaces.paths import HOME

_runs = PerEventLoop(lambda: Shares(4, of_one=2))


class GitFailed(ConversationError):
    """Git has no answer; the text says why."""

    code = "git_failed"


class UnknownRevision(GitFailed):
    """The repository has no such branch, tag or commit."""

    code = "unknown_revision"


class GitBounds:
    """How long a run may take, and how much is shown of what it finds."""

    timeout_s = 20.0
    output_bytes = 8_000_000
    file_bytes = 1024 * 1024
    """Of a longer file nothing is shown, as on the wires."""
    files = 10_000


class GitOutput:
    """What a run of git prints, as far as it is kept."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.is_cut = False
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, piece: bytes) -> bool:
        """Keep a piece, as far as there is room; return whether there is room for more."""
        room = self.most - self._size
        self._pieces.append(piece[:room])
        self._size += min(len(piece), room)
        self.is_cut = self.is_cut or len(piece) > room
        return not self.is_cut

    @property
    def whole(self) -> bytes:
        """What is kept."""
        return b"".join(self._pieces)


async def run(user_pk: int, directory: Path, action: str, *arguments: str | bytes) -> bytes:
    """Return what an action of the script prints about a workspace, cut at some megabytes.

    Raise NoSandbox, StoreUnavailable, UnknownRevision or GitFailed.
    """
    if (await asyncio.to_thread(choice.chosen)).asks_first:
        raise NoSandbox(
            "What git says is not shown without a sandbox, because a repository can name programs that git "
            "runs. Set CONVSERVER_SANDBOX to auto."
        )
    async with _runs.get().place(user_pk):
        # A thread that starts a program after its caller has gone would leave it.
        return await uncancelled(_run(directory, [action, *arguments]))


async def _run(directory: Path, arguments: Sequence[str | bytes]) -> bytes:
    timeout_s = GitBounds.timeout_s
    out, err = GitOutput(GitBounds.output_bytes), GitOutput(2000)
    # A path may have any bytes, which the arguments of a program have as they are.
    given = [
        each.decode("utf-8", "surrogateescape") if isinstance(each, bytes) else each for each in arguments
    ]
    program = await PipedProgram.started(
        ["sh", "-c", SCRIPT, "git", *given], directory, home=HOME, environment=ENVIRONMENT
    )

    def take(piece: bytes) -> bool:
        if not out.take(piece):
            program.kill()
        return True

    end = await program.ended(timeout_s=timeout_s, stdout=take, stderr=err.take)
    if end.has_timed_out:
        raise GitFailed(
            f"Git took longer than {timeout_s:.0f} s. The repository may be too large, or name programs that "
            "take long."
        )
    if end.exit_code == ScriptExit.UNKNOWN_REVISION:
        raise UnknownRevision("The repository has no such branch, tag or commit.")
    # Of a list that was cut, what has come is shown.
    if end.exit_code and not out.is_cut:
        words = program.reason or err.whole.decode(errors="replace").strip()
        raise GitFailed(f"Git failed: {words or f'exit code {end.exit_code}'}")
    return out.whole
