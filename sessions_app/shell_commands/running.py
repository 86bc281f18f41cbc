"""One command of a client: its bash in a sandbox, its output as events, its end."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from conversations.exceptions import ConversationError
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.shell_commands.events import CommandEvent, CommandOutput, CommandStarted
from sessions_app.shell_commands.piped import PipedProgram
from sessions_app.workspaces import records
from sessions_app.workspaces.beneath import PathRefused

_failing = Outage(__name__, "A command in a workspace failed")

TIMED_OUT, STOPPED = -1, -15
"""The exit codes of commands that were ended: for taking too long, and by a client, as the wire has them."""
_IN = 'cd -- "$0" && exec bash -c "$1"'


@dataclass(slots=True)
class CommandStream:
    """One of the two outputs of a command, as text in parts that the wire has."""

    most: int
    """The bytes that are kept."""
    publish: Callable[[str], None]
    """Publishes a whole part."""
    size: int = 0
    text: str = ""
    is_cut: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def take(self, piece: bytes) -> bool:
        """Add a piece, as far as there is room; return whether there was."""
        part = 1024 * 1024
        room = self.most - self.size
        self.is_cut = self.is_cut or len(piece) > room
        self.size += min(len(piece), room)
        self.text += self._decoder.decode(piece[:room])
        while len(self.text) > part:
            self.publish(self.text[:part])
            self.text = self.text[part:]
        return not self.is_cut

    def end(self) -> str | None:
        """Return what was not published; None for nothing."""
        self.text += self._decoder.decode(b"", final=True)
        return self.text or None


class CommandPlace(NamedTuple):
    """Where a command runs."""

    directory: Path
    """The workspace."""
    home: str
    """Where it sees the workspace."""
    cwd: str
    problem: str
    """Why there is no such directory; empty if there is."""
    has_network: bool


class RunningCommand:
    """A command that was started, with the events of it; it stays when it has ended."""

    def __init__(
        self,
        started: CommandStarted,
        place: CommandPlace,
        *,
        most: int,
        publish: Callable[[CommandEvent], None],
    ) -> None:
        """Start the command; of each of its outputs `most` bytes are kept."""
        self.started = started
        self.outputs: list[CommandOutput] = []
        self._place = place
        self._publish = publish
        self._program: PipedProgram | None = None
        self._fullness = ""
        self._is_stopped = False  # maybe before the program is there
        self._stop_reason = ""
        self._stdout = CommandStream(most, lambda text: self._put(stdout=text))
        self._stderr = CommandStream(most, lambda text: self._put(stderr=text))
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def has_ended(self) -> bool:
        """Whether the last event of the command is there."""
        return bool(self.outputs) and self.outputs[-1].exit_code is not None

    @property
    def size(self) -> int:
        """The bytes that its events hold."""
        return len(self.started.command) + self._stdout.size + self._stderr.size

    async def end(self) -> CommandOutput:
        """Wait for the command's end, and return all of its output as one event."""
        await asyncio.shield(self._task)
        last = self.outputs[-1]
        return CommandOutput(
            id=last.id,
            timestamp=last.timestamp,
            command_id=last.command_id,
            order=last.order,
            exit_code=last.exit_code,
            stdout="".join(each.stdout or "" for each in self.outputs) or None,
            stderr="".join(each.stderr or "" for each in self.outputs) or None,
        )

    async def stop_at(self, loss: Awaitable[str]) -> None:
        """Stop the command if this ends first, with the reason that it returns; else cancel it."""
        waiting = asyncio.ensure_future(loss)
        try:
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                await self.stop(waiting.result())
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def stop(self, reason: str = "") -> None:
        """End the command with all that it has started, if it has not ended; its errors say why."""
        if not self.has_ended:
            self._is_stopped, self._stop_reason = True, reason
            if self._program is not None:
                self._program.kill()
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        try:
            exit_code = await self._ended()
        except Exception as error:  # whatever it was, clients wait for the last event
            if not isinstance(error, ConversationError):
                _failing.failed(error)
            self._put(exit_code=-1, stderr=f"Error executing command: {error}")
        else:
            self._put(exit_code=exit_code, stdout=self._stdout.end(), stderr=self._words())

    async def _ended(self) -> int:
        directory, home, cwd, problem, has_network = self._place
        if problem:
            raise PathRefused(problem)
        command = self.started.command
        argv = ["bash", "-c", command] if cwd == home else ["bash", "-c", _IN, cwd, command]
        self._program = await PipedProgram.started(argv, directory, home=home, has_network=has_network)
        if self._is_stopped:  # meanwhile
            self._program.kill()
        end = await self._program.ended(
            timeout_s=self.started.timeout, stdout=self._stdout.take, stderr=self._stderr.take
        )
        if (held := await asyncio.to_thread(self._program.held)) is not None:
            self._fullness = await astore.change(records.note_held, directory, held)
        if self._is_stopped:
            return STOPPED
        return TIMED_OUT if end.has_timed_out else end.exit_code

    def _words(self) -> str | None:
        """Return the rest of the errors, with sentences of the server's own about the end."""
        words = [self._stderr.end() or ""]
        if self._stdout.is_cut or self._stderr.is_cut:
            words.append(f"[The rest of the output was left out: {self._stdout.most:,} bytes are kept.]\n")
        if self._program is not None and self._program.reason:
            words.append(f"[{self._program.reason}]\n")
        elif self._fullness:
            words.append(f"[{self._fullness}]\n")
        if self._stop_reason:
            words.append(f"[{self._stop_reason}]\n")
        return "".join(words) or None

    def _put(
        self, *, stdout: str | None = None, stderr: str | None = None, exit_code: int | None = None
    ) -> None:
        event = CommandOutput(
            command_id=self.started.id,
            order=len(self.outputs),
            exit_code=exit_code,
            stdout=stdout,
            stderr=stderr,
        )
        self.outputs.append(event)
        self._publish(event)
