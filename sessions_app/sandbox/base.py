"""What every sandbox does: it starts a program in a workspace, and ends it with all that it has started."""

from __future__ import annotations

import asyncio
import posixpath
import re
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from conversations.exceptions import ConversationError, StoreUnavailable
from sessions_app.sandbox.measuring import HeldOnDisk
from sessions_app.sandbox.room import RoomWatch

HOME = "/workspace"
"""Where a program sees its workspace, if it is not to be somewhere else."""
NOTHING: Mapping[str, str] = MappingProxyType({})
NO_DIRECTORIES: Mapping[str, Path] = MappingProxyType({})


class NoSandbox(ConversationError):
    """No program can be started; the text says why and what to do."""

    code = "no_sandbox"


class SandboxName(StrEnum):
    """The values of CONVSERVER_SANDBOX."""

    AUTO = "auto"
    BUBBLEWRAP = "bubblewrap"
    DOCKER = "docker"
    NONE = "none"
    OFF = "off"


class SandboxLimits(NamedTuple):
    """What a program may use, together with all that it starts."""

    memory_mb: int
    processes: int
    """Processes and threads."""
    file_mb: int
    """The size of one file."""
    workspace: HeldOnDisk | None = None
    """What its workspace may hold; None for no limit."""


class Command(NamedTuple):
    """What is to be started."""

    argv: Sequence[str]
    directory: Path
    """The workspace."""
    home: str
    """Where the program sees it."""
    streams: tuple[int, int, int]
    environment: Mapping[str, str]
    own_terminal: bool
    has_network: bool = False
    """Whether it reaches public servers, by the proxy of `sandbox_network`."""
    further: Mapping[str, Path] = NO_DIRECTORIES
    """Directories beside the workspace, by where the program sees them, of runs of the server's own."""
    identity: tuple[int, int] | None = None
    """The device and the number of the workspace, if another one may have got its path."""


class Running(ABC):
    """What a sandbox has started, until all of it has ended."""

    process: subprocess.Popen[bytes]

    @abstractmethod
    def end(self) -> None:
        """End the process and all that it has started; harmless when these have ended.

        It may take seconds, and is called by the thread that watches the process.
        """

    def end_watch(self) -> None:
        """End what `watch` waits for, from any thread and without waiting; `end` follows in its thread."""
        self.process.kill()

    @abstractmethod
    def watch(self, end_because: Callable[[str], None]) -> None:
        """Wait for the end of the process, and then of all that it has started.

        A limit that ends them calls `end_because` with the sentence that says so.
        """

    def processes(self) -> Sequence[str]:
        """Return the directories of /proc of all that runs, as far as the sandbox knows it."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Give back what is no longer needed after the end. Nothing else is called after this."""


class SandboxedProgram:
    """A program that was started, with everything that it starts."""

    def __init__(self, start: Callable[[], Running], directory: Path, room: HeldOnDisk | None = None) -> None:
        """`room` is what its workspace, this directory, may hold; None for no limit."""
        self.reason = ""
        """The sentence that says which limit ended the program; empty if none did."""
        self._started: Future[Running] = Future()
        self._ended: Future[int] = Future()
        # So that cancelling a task that waits for the end does not cancel this.
        self._ended.set_running_or_notify_cancel()
        self._directory, self._room = directory, room
        self._watch: RoomWatch | None = None
        self._lock = threading.Lock()
        self._is_killed = self._is_over = False
        # Linux ends a child together with the thread that started it, so that thread stays until its end.
        threading.Thread(target=self._run, args=(start,), name="sandbox", daemon=True).start()
        self.pid = self._started.result().process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, -9 if the program was ended from outside, or None while it runs.

        If another signal ended the program, it is that signal and 128, as in a shell, or the negative signal.
        """
        return self._ended.result() if self._ended.done() else None

    def kill(self) -> None:
        """End the program and everything that it has started; a second call does nothing.

        It waits for nothing: the program's thread does what takes time, and `wait` returns after that.
        """
        with self._lock:
            if not self._is_killed and not self._is_over:
                self._is_killed = True
                self._started.result().end_watch()

    async def wait(self) -> int:
        """Wait until the program and everything that it has started is gone; return its exit code."""
        return await asyncio.wrap_future(self._ended)

    @property
    def is_nearly_full(self) -> bool:
        """Whether the workspace is watched, and was nearly full when it was measured last."""
        return self._watch is not None and self._watch.is_nearly_full

    def held(self) -> HeldOnDisk | None:
        """Return what the workspace holds, as far as it is watched and was measured; it may take a second."""
        return None if self._watch is None else self._watch.held()

    def _run(self, start: Callable[[], Running]) -> None:
        try:
            running = start()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result(running)
        with suppress(OSError):  # the program fails as well if its workspace is gone
            if self._room is not None:
                self._watch = RoomWatch(self._directory, self._room, running.processes, self._end_because)
        try:
            running.watch(self._end_because)
        finally:
            running.end()
            code = running.process.wait()
            with self._lock:
                self._is_over = True
                running.close()
            self._ended.set_result(-9 if self._is_killed else code)
            if self._watch is not None:
                self._watch.close()

    def _end_because(self, reason: str) -> None:
        self.reason = reason
        self.kill()


class Sandbox(ABC):
    """A way to run programs of agents. Its instances can be used from all threads."""

    name: ClassVar[SandboxName]
    asks_first: ClassVar[bool] = False
    """Whether nothing confines a program, so that every command needs the user's approval."""
    network_variables: ClassVar[Mapping[str, str]] = NOTHING
    """Variables of programs that have a network."""

    def __init__(self, limits: SandboxLimits) -> None:
        self.limits = limits

    def start(
        self,
        argv: Sequence[str],
        directory: Path,
        *,
        home: str = HOME,
        stdin: int,
        stdout: int,
        stderr: int,
        environment: Mapping[str, str] = NOTHING,
        own_terminal: bool = False,
        has_network: bool = False,
        further: Mapping[str, Path] = NO_DIRECTORIES,
        identity: tuple[int, int] | None = None,
    ) -> SandboxedProgram:
        """Start a program in a workspace, whose path it sees as `home`: its HOME and working directory.

        It blocks for some milliseconds. The program has the three descriptors and a small environment; with
        `own_terminal`, stdin is a pseudo-terminal that becomes the program's controlling one, and with
        `has_network` it reaches public servers. It sees and writes `further` directories, too. A workspace
        with an `identity`, its device and number, is the user's: nothing bounds it. Raise NoSandbox or
        StoreUnavailable.
        """
        if not directory.is_dir():
            raise StoreUnavailable(f"The directory of the workspace is not there: {directory.name}.")
        seen = self.seen_at(home, directory)
        given = {**self.network_variables, **environment} if has_network else environment
        inside = environment_of(seen, given, own_terminal)
        streams = (stdin, stdout, stderr)
        command = Command(
            argv, directory, seen, streams, inside, own_terminal, has_network, further, identity
        )
        room = self.limits.workspace if identity is None else None
        return SandboxedProgram(lambda: self.started(command), directory, room)

    def of_owner(self, owner: tuple[int, int] | None) -> Sandbox:
        """Return the same for another user and group; None for the server's account."""
        return self

    def seen_at(self, home: str, directory: Path) -> str:
        """Return where a program sees its workspace that is to be at `home`."""
        return safe_home(home)

    @abstractmethod
    def started(self, command: Command) -> Running:
        """Start a program. The calling thread stays until its end. Raise NoSandbox."""

    @abstractmethod
    def look(self) -> None:
        """Raise NoSandbox if programs cannot be started on this machine."""

    def look_for_network(self) -> None:
        """Raise NoSandbox if programs cannot have a network by the server's proxy."""
        raise NoSandbox(
            f"A sandbox of the kind {self.name} has no proxy. Set CONVSERVER_SANDBOX to bubblewrap."
        )


def safe_home(home: str) -> str:
    """Return a path where a workspace can be seen: the one that is asked for, unless a system needs it."""
    taken = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin")
    parts = home.split("/")
    # Docker reads the path in a list with commas, in which a second source could follow.
    has_signs = any(sign in home for sign in (",", '"', "="))
    is_plain = home == posixpath.normpath(home) and home.isprintable() and len(home) < 1000 and not has_signs
    if not is_plain or parts[0] or not parts[1] or home in ("/tmp", "/var", "/var/run"):
        return HOME
    return HOME if f"/{parts[1]}" in (*taken, "/sys", "/usr") else home


def environment_of(home: str, given: Mapping[str, str], own_terminal: bool) -> dict[str, str]:
    """Return the environment of a program: nothing of the server's.

    Of what is given, a name that no shell can use is left out. Raise NoSandbox for a value that no program
    can have.
    """
    usable = {name: value for name, value in given.items() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)}
    for name, value in usable.items():
        if "\0" in value:
            raise NoSandbox(f"No program can be given the variable {name}: its value has a null character.")
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
        "PWD": home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color" if own_terminal else "dumb",
        **usable,
    }
