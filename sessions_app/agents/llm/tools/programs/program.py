"""A tool server that is a program: its bounded messages, and its end with its whole process group.

Imported late, like all that needs the library.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from sessions_app.agents.llm.faults import ToolFault
from sessions_app.agents.llm.tools.messages import message_of
from sessions_app.agents.llm.tools.programs.stderr import LastLines, secrets_of
from sessions_app.agents.llm.tools.servers import ToolServer

MESSAGE_MAX_BYTES = 4 * 1024 * 1024
UNREADABLE_MAX = 100  # lines that are no messages, such as a greeting
# Between two calls: a program may also send messages that were not asked for.
FLOOD_MAX_BYTES = 32 * 1024 * 1024
FLOOD_MAX_MESSAGES = 10_000
LEAVES_S = 1.0
"""The time of a program to end after the end of its input, and again after SIGTERM."""
# A program inherits only these variables: the server's environment has its keys.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT")

NOT_FOUND = "its command can't be run: there is no such program, or it isn't executable"
ENDED = "it has ended"
TOO_LONG = f"it wrote a message of more than {MESSAGE_MAX_BYTES // 1024 // 1024} MB"
NO_MESSAGES = "it writes text to its standard output that is no message of the protocol"
FLOOD = "it writes without end"

Fail = Callable[[ToolFault], None]
Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectReceiveStream[SessionMessage]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]
"""The streams of a session of the library."""


class _Closable(Protocol):
    def close(self) -> None: ...


class ToolProgram:
    """Runs a program, and counts its output since the last call."""

    def __init__(self, server: ToolServer, fail: Fail) -> None:
        """`fail` is called once the program has ended or has written too much."""
        self._server = server
        self._fail = fail
        self._unreadable = 0
        self._bytes = 0
        self._messages = 0
        self._last_lines = LastLines(secrets_of(server.environment, server.command))
        self.has_failed = False
        """Whether to kill it without waiting for its end."""

    def expect(self) -> None:
        """Reset the counts at the begin of a call."""
        self._bytes = self._messages = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Streams]:
        """Start the program, and end its process group after the block. Raise ToolFault."""
        process = await self._started()
        try:
            incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, process, incoming)
                group.start_soon(self._last_lines.listen, cast(StreamReader, process.stderr))
                group.start_soon(_tell, process, outgoing)
                try:
                    yield read, write
                finally:
                    _close(read, write, incoming, outgoing)
                    with anyio.CancelScope(shield=True):
                        await _end(process, at_once=self.has_failed)
                    group.cancel_scope.cancel()
        finally:
            _kill(process)  # also if this task was cancelled

    async def _started(self) -> Process:
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            return await asyncio.create_subprocess_exec(
                *self._server.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env={**inherited, **dict(self._server.environment)},
                cwd=self._server.folder or Path.home(),
                limit=MESSAGE_MAX_BYTES,
                start_new_session=True,  # a process group, to end all that it starts as well
            )
        except (OSError, ValueError) as error:
            raise ToolFault(NOT_FOUND) from error

    async def _listen(self, process: Process, incoming: Incoming) -> None:
        """Forward the program's messages, until it ends or writes too much."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                while line := await _line(process):
                    if (message := self._read(line)) is not None:
                        await incoming.send(message)
                    else:
                        await anyio.lowlevel.checkpoint()
                await self._last_lines.end()
                self._end_with(ToolFault(ENDED))
            except ToolFault as fault:
                self._end_with(fault)
            finally:
                incoming.close()  # ends the waiting requests

    def _end_with(self, fault: ToolFault) -> None:
        self._fail(self.explained(fault))

    def explained(self, fault: ToolFault) -> ToolFault:
        """Return a fault with the end of the program's standard error."""
        fault.last_lines = fault.last_lines or self._last_lines.text
        return fault

    def _read(self, line: bytes) -> SessionMessage | None:
        self._bytes += len(line)
        self._messages += 1
        if self._bytes > FLOOD_MAX_BYTES or self._messages > FLOOD_MAX_MESSAGES:
            raise ToolFault(FLOOD)
        if not line.strip():
            return None
        message = message_of(line)
        if message is None:
            self._unreadable += 1
            if self._unreadable > UNREADABLE_MAX:
                raise ToolFault(NO_MESSAGES)
        return message


async def _line(process: Process) -> bytes:
    try:
        return await cast(StreamReader, process.stdout).readline()
    except ValueError:  # longer than the limit
        raise ToolFault(TOO_LONG) from None


async def _tell(process: Process, outgoing: Outgoing) -> None:
    """Write the session's messages to the program."""
    stdin = cast(StreamWriter, process.stdin)
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        async with outgoing:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()


def _close(*streams: _Closable) -> None:
    for stream in streams:
        stream.close()


async def _end(process: Process, *, at_once: bool) -> None:
    """Close the program's input and wait for its end, then terminate, then kill it."""
    cast(StreamWriter, process.stdin).close()
    if not (at_once or await _has_ended(process)):
        _signal(process, signal.SIGTERM)
        await _has_ended(process)
    _kill(process)
    await _has_ended(process)


async def _has_ended(process: Process) -> bool:
    # `wait` would also wait for the end of its output, which its children may hold open.
    for _ in range(int(LEAVES_S / 0.01)):
        if process.returncode is not None:
            return True
        await asyncio.sleep(0.01)
    return False


def _kill(process: Process) -> None:
    """Kill the rest of the program's process group."""
    _signal(process, signal.SIGKILL)
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _signal(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
