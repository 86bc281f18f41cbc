"""Programs that nothing confines, with the rights of the server's account: for one's own machine only."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from sessions_app.sandbox.base import Command, NoSandbox, Running, Sandbox, SandboxName

_MARK = "CONVSERVER_PROGRAM"
"""The variable by which programs are found whose parents have ended."""
_WITH_TERMINAL = """
import fcntl, os, signal, sys, termios
# A server that was started in the background of a script ignores interrupts, and so would these programs.
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Unconfined(Sandbox):
    """No sandbox: every command has to be approved."""

    name: ClassVar[SandboxName] = SandboxName.NONE
    asks_first: ClassVar[bool] = True

    def seen_at(self, home: str, directory: Path) -> str:
        """Return the directory itself: nothing shows it elsewhere."""
        return str(directory)

    def look(self) -> None:
        """Raise nothing: a program can always be started."""

    def started(self, command: Command) -> Running:
        """Start a program with a mark that all have that it starts."""
        mark = secrets.token_hex(16)
        leader = [sys.executable, "-I", "-S", "-c", _WITH_TERMINAL] if command.own_terminal else []
        stdin, stdout, stderr = command.streams
        try:
            process = subprocess.Popen(
                [*leader, *command.argv],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=command.directory,
                env={**command.environment, _MARK: mark},
                start_new_session=not command.own_terminal,
            )
        except OSError as error:
            raise NoSandbox(f"{command.argv[0]!r} cannot be started: {error.strerror}.") from error
        return _Marked(process, mark)


class _Marked(Running):
    """A program without a sandbox."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self.process = process
        self._mark = f"{_MARK}={mark}".encode()

    def end(self) -> None:
        """End the program and all that has its mark; what took the mark off is not found."""
        self.end_watch()
        tries = 10  # each ends what the programs started meanwhile
        for _ in range(tries):
            if not (left := list(self._marked())):
                return
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def end_watch(self) -> None:
        """End the program and its group."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()

    def watch(self, end_because: Callable[[str], None]) -> None:
        """Wait for the end of the program; nothing limits it."""
        self.process.wait()

    def close(self) -> None:
        """Do nothing: no descriptors are kept."""

    def _marked(self) -> Iterator[int]:
        """Yield the processes with the mark, where the system shows environments as files (Linux)."""
        for each in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if self._mark in each.read_bytes().split(b"\0"):
                    yield int(each.parent.name)
