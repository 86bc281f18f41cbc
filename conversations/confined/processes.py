"""Starting a confined process, collecting its output, and killing it at a limit or when unwanted."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from conversations.confined import child, walls

CHUNK_BYTES = 1024 * 1024
END_MAX_BYTES = 8 * child.PROBLEM_MAX_CHARS
NEEDED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # some Pythons do not start without these
TOO_SLOW = "it takes longer than a file of its size should take"


class NotRead(Exception):
    """The process did not read the whole file; the message says why, as the end of a sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessLimits:
    """What one confined process may take."""

    memory_bytes: int  # address space, with the interpreter's own of some tens of megabytes
    cpu_s: int
    wall_s: float
    output_bytes: int


_check: ContextVar[Callable[[], object]] = ContextVar("_check", default=lambda: None)


@contextmanager
def checked_by(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` several times a second while this context waits for a confined process.

    If it raises, the process is killed and the error is passed on; imports are cancelled in this way.
    """
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check() -> None:
    """Call the check of `checked_by`, from a long loop over the output of a confined process."""
    _check.get()()


def run(
    reader: Path,
    arguments: Sequence[object],
    *,
    limits: ProcessLimits,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    source: IO[bytes] | None = None,
    libraries: Sequence[Path] = (),
) -> IO[bytes]:
    """Call `read(*arguments)` of a reader's file in a confined process; return its output.

    The arguments are JSON values; `source` is a file that becomes its standard input. The result is a
    nameless temporary file, at its beginning. The process can read only the given paths, import `libraries`,
    and open `writable` for writing, though not write. Raise NotRead, and errors of the check of `checked_by`.
    """
    task = {
        "parent": os.getpid(),
        "walls": walls.__file__,
        "reader": str(reader),
        "arguments": arguments,
        "memory_bytes": limits.memory_bytes,
        "cpu_s": limits.cpu_s,
        "libraries": [str(path) for path in libraries],
        "readable": [str(path) for path in (*readable, *libraries)],
        "writable": [str(path) for path in writable],
    }
    output = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's to close
    try:
        with _started(json.dumps(task), source) as process:
            try:
                end = _taken(process, output, limits)
            finally:
                process.kill()
        _require_end(end, process.returncode, output)
    except BaseException:
        output.close()
        raise
    output.seek(0)
    return output


def _started(task: str, source: IO[bytes] | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this interpreter, and a program of this package
        [sys.executable, "-I", "-S", child.__file__, task],
        stdin=subprocess.DEVNULL if source is None else source,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name in NEEDED_VARIABLES},
        start_new_session=True,  # Ctrl-C is this process's to handle
    )


def _taken(process: subprocess.Popen[bytes], output: IO[bytes], limits: ProcessLimits) -> bytes:
    """Copy the output of the process until it closes it; return the end of it. Raise NotRead."""
    assert process.stdout  # noqa: S101 - Popen was given a pipe
    until, check_s = time.monotonic() + limits.wall_s, 0.2
    left, end = limits.output_bytes, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            check()
            if time.monotonic() > until:
                raise NotRead(TOO_SLOW)
            if not selector.select(check_s):
                continue
            chunk = os.read(process.stdout.fileno(), CHUNK_BYTES)
            if not chunk:
                return end
            left -= len(chunk)
            if left < 0:
                raise NotRead("there is far more in it than a file of its size can hold")
            output.write(chunk)
            end = (end + chunk)[-END_MAX_BYTES:]


def _require_end(end: bytes, status: int, output: IO[bytes]) -> None:
    """Cut off the last line, which reports success. Raise NotRead if it reports something else."""
    line = end[end.rstrip(b"\n").rfind(b"\n") + 1 :].decode(errors="replace")
    if line == child.END:
        output.truncate(output.tell() - len(line))
        return
    if line.startswith(child.PROBLEM):
        raise NotRead(line.removeprefix(child.PROBLEM).strip())
    if status == -signal.SIGXCPU:
        raise NotRead(TOO_SLOW)
    raise NotRead("reading it broke off")
