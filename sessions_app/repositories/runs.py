"""Runs of git, in a sandbox or outside, that a cancellation ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from conversations.exceptions import ConversationError
from sessions_app.shell_commands.piped import PipedProgram, ProgramEnd, Take


class RepositoryFailed(ConversationError):
    """A repository was not cloned or pushed; the text says why."""

    code = "repository_failed"


class RunEnd:
    """How a run of git has ended, and the end of what it has written."""

    def __init__(self, end: ProgramEnd, reason: str, said: str) -> None:
        self.exit_code = end.exit_code
        self.reason = reason
        """Why it was ended from outside; empty if it was not."""
        self.said = said


async def ended(
    start: Callable[[], Awaitable[PipedProgram]],
    *,
    timeout_s: float,
    stdout: Take = lambda _: True,
    stderr: Take = lambda _: True,
) -> RunEnd:
    """Start a program and wait for its end. Raise RepositoryFailed if it takes too long, and as `start`."""
    started: list[PipedProgram] = []
    said = b""

    def keep(piece: bytes) -> bool:
        nonlocal said
        most = 8_000
        said = (said + piece)[-most:]
        return stderr(piece)

    async def run() -> ProgramEnd:
        started.append(await start())
        return await started[0].ended(timeout_s=timeout_s, stdout=stdout, stderr=keep)

    running = asyncio.ensure_future(run())
    is_cancelled = False
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            is_cancelled = True
        # Only now: a thread that starts a program after its caller has gone would leave it.
        while is_cancelled and not running.done():
            for each in started:
                each.kill()
            await asyncio.wait({running}, timeout=0.05)
    if is_cancelled:
        running.exception()
        raise asyncio.CancelledError
    end = running.result()
    if end.has_timed_out:
        raise RepositoryFailed(f"Git took longer than {timeout_s:,.0f} s.")
    return RunEnd(end, started[0].reason, said.decode(errors="replace"))
