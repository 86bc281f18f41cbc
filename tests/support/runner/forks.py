"""Programs of Python that start quickly: each is a copy of a process that has imported all libraries.

Half of what a server's start computes is the import of libraries. `start` has a waiting process do what
`python -m` does, in a copy of itself. The waiting process has imported no module of the project and no
settings, so every copy reads its own environment; and the copy becomes a child of the caller, which kills
it and waits for it as for any other. Where that is not possible, the program is started as usual.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol

ROOT = Path(__file__).parents[3]
PROJECT = ("convserver", "conversations", "sessions_app")
LATE = ("genai_prices", "httpx2", "pydantic_ai")
"""Libraries that a server imports on first use only: they take longer than all others."""
# Whole lines: a sentence of a docstring may begin with "import", too.
IMPORTED = re.compile(
    r"^(?:from (\w[\w.]*) import (\([^)]*\)|[\w*, ]+)|import (\w[\w.]*)(?: as \w+)?)(?: *#.*)?$", re.MULTILINE
)

READ_AT_START = re.compile(r"PYTHON|LC_|LANG|LD_|MALLOC_|GLIBC|SSL_|OPENSSL|TZ$")
"""Variables that Python, its libraries or the C library read only once, when a process starts."""

PR_SET_CHILD_SUBREAPER = 36
EXECUTE = ["timeit", "--number=1", "--repeat=1"]
"""Executes a statement, as a module with arguments."""

END_WAIT_S = 60.0
REQUEST_MAX_BYTES = 256 * 1024
DESCRIPTORS_MAX = 3
LOOK_S = 0.01


class Running(Protocol):
    """A program that was started, whichever way."""

    @property
    def pid(self) -> int:
        """Its process."""

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status. Raise subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send a signal if it still runs."""


class Fork:
    """A copy of the waiting process; a child of this one."""

    def __init__(self, pid: int, what: Sequence[str]) -> None:
        self._pid = pid
        self._what = what
        self._status: int | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        with self._lock:
            if self._status is None:
                ended, status = os.waitpid(self._pid, os.WNOHANG)
                self._status = os.waitstatus_to_exitcode(status) if ended else None
            return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status. Raise subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout if timeout is not None else None
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(list(self._what), timeout or 0.0)
            time.sleep(LOOK_S)
        return status

    def send_signal(self, sig: int) -> None:
        """Send a signal if it still runs."""
        if self.poll() is None:
            os.kill(self._pid, sig)


class Waiting:
    """The process that waits to be copied, from its first use until this process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: Mapping[str, str] = {}

    def copies(self, environment: Mapping[str, str]) -> bool:
        """Say whether a program may be a copy: what is read only at a start is the same."""
        if sys.platform != "linux":
            return False
        with self._lock:
            self._require(environment)
        return _read_at_start(environment) == _read_at_start(self._environment)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stdout: IO[Any],
        stderr: IO[Any],
        *,
        passed: Sequence[int] = (),
    ) -> Fork:
        """Let a copy run `python -m command…`, followed by the numbers that passed descriptors have there."""
        with self._lock:
            self._require(environment)
            assert self._socket is not None
            return copied(self._socket, command, environment, [stdout.fileno(), stderr.fileno(), *passed])

    def _require(self, environment: Mapping[str, str]) -> None:
        if self._socket is None:
            self._environment = {**_read_at_start(environment), "PATH": environment.get("PATH", "")}
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.runner.forks", str(theirs.fileno())],
                    cwd=ROOT,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            atexit.register(self._end)

    def _end(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()  # the other end is told
            self._process.wait()


waiting = Waiting()

_adopting = threading.Lock()


def copied(
    waiting: socket.socket, command: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int]
) -> Fork:
    """Ask the process at the other end for a copy that runs a command. Raise RuntimeError if it has ended.

    The descriptors are its stdout, its stderr and what else it shall have: the command is followed by the
    numbers of those.
    """
    request = json.dumps([list(command), dict(environment)]).encode()
    with _adopting:
        _adopt(True)
        try:
            socket.send_fds(waiting, [request], descriptors)
            answer = waiting.recv(64)
        finally:
            _adopt(False)
    if not answer:
        raise RuntimeError("The process that waits to be copied has ended.")
    return Fork(int(answer), command)


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdout: IO[Any],
    stderr: IO[Any],
    run_by: Sequence[str] = (),
) -> Running:
    """Start `python -m command…` in the project's directory; `run_by` is a program that becomes it."""
    if not run_by and waiting.copies(environment):
        return waiting.start(command, environment, stdout, stderr)
    program = [*run_by, sys.executable, "-m", *command]
    return subprocess.Popen(program, cwd=ROOT, env=environment, stdout=stdout, stderr=stderr)


def run(
    command: Sequence[str], environment: Mapping[str, str], *, run_by: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `python -m command…` to its end, at most END_WAIT_S; return its exit status and what it printed."""
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = start(command, environment, stdout=stdout, stderr=stderr, run_by=run_by)
        try:
            status = process.wait(END_WAIT_S)
        finally:
            process.send_signal(signal.SIGKILL)
        printed = [_all_of(file) for file in (stdout, stderr)]
    return subprocess.CompletedProcess(list(command), status, *printed)


def printed_by(statement: str, environment: Mapping[str, str]) -> str:
    """Execute a statement in a copy; return the first line that it prints. Raise RuntimeError if it fails."""
    ended = run([*EXECUTE, statement], environment)
    if ended.returncode or ended.stderr:
        raise RuntimeError(ended.stderr)
    return ended.stdout.partition("\n")[0]


def _all_of(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if READ_AT_START.match(name)}


def _adopt(are_adopted: bool) -> None:
    """Become the parent of descendants whose own one ends, or no longer."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(are_adopted), 0, 0, 0)


def _libraries() -> Iterator[tuple[str, str]]:
    """Yield every module of a library that a module of the project imports, and each name from it."""
    for package in PROJECT:
        for file in (ROOT / package).rglob("*.py"):
            for source, names, whole in IMPORTED.findall(file.read_text()):
                module = source or whole
                if module.partition(".")[0] not in (*PROJECT, *LATE):
                    yield from ((module, name) for name in re.findall(r"\w+", names) or [""])


def _choose_sqlite() -> None:
    """Choose the library of SQLite, which what is imported next keeps; then forget the project's modules."""
    import_module("conversations.engines.sqlite3.library").use_fixed()
    for name in [name for name in sys.modules if name.partition(".")[0] in PROJECT]:
        del sys.modules[name]


def _import_libraries() -> None:
    from django.core.exceptions import AppRegistryNotReady, ImproperlyConfigured

    for module, name in sorted(set(_libraries())):
        with suppress(ImproperlyConfigured, AppRegistryNotReady):  # needs settings: each copy has its own
            getattr(import_module(module), name, None)  # some import what they hold once it is asked for


def answer_requests(requests: socket.socket) -> Sequence[str] | None:
    """Answer requests. Return None when there will be no more, and in a copy what it has to run."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_MAX_BYTES, DESCRIPTORS_MAX)
        if not request:
            return None
        reading, writing = os.pipe()
        if not (between := os.fork()):
            # The copy's own parent ends at once, and so the caller becomes its parent.
            if pid := os.fork():
                os.write(writing, str(pid).encode())
                os._exit(0)
            requests.close()
            os.close(reading)
            os.close(writing)
            return _prepared(request, descriptors)
        for descriptor in (*descriptors, writing):
            os.close(descriptor)
        os.waitpid(between, 0)
        requests.send(os.read(reading, 64))
        os.close(reading)


def _prepared(request: bytes, descriptors: Sequence[int]) -> Sequence[str]:
    """Take the environment and the output that were asked for; return the command."""
    command: Sequence[str]
    command, environment = json.loads(request)
    outputs, others = descriptors[:2], descriptors[2:]
    for target, descriptor in enumerate(outputs, 1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    return [*command, *map(str, others)]


def run_module(command: Sequence[str]) -> None:
    """Do what `python -m command…` does."""
    sys.argv = list(command)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller
    _choose_sqlite()
    _import_libraries()
    gc.collect()
    gc.freeze()  # no copy looks for garbage in what all of them share
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        command = answer_requests(requests)
    if command is not None:
        signal.signal(signal.SIGINT, interrupted)
        run_module(command)
