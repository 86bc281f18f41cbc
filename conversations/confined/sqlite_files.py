"""Untrusted SQLite files: the rows of their tables, read by a confined process."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from conversations.confined import processes
from conversations.confined.processes import NotRead, ProcessLimits
from conversations.confined.sqlite_reader import SPARE_BYTES

READER = Path(__file__).with_name("sqlite_reader.py")

CPU_S, CPU_MAX_S = 20, 600
# A large file may take longer in proportion. A slow machine reads about 20 MB in a second.
BYTES_PER_CPU_S = 2 * 1024 * 1024
WALL_TIMES = 3

TRIES = 5

COPIES = "convserver-read-"
# The directory of a killed process is removed when no process can still use it.
LEFT_AFTER_S = 3 * CPU_MAX_S * WALL_TIMES


class ChangedMeanwhile(NotRead):
    """The file was written to while it was read."""


def rows(path: Path, keys: Mapping[str, str | None]) -> IO[bytes]:
    """Return the rows of these tables, as `sqlite_reader.read` prints them; `keys` has each key column.

    The file and its companions are neither changed nor locked. Its write-ahead log is read, too. A rollback
    journal is never opened, because it can name any file to be deleted; one that is in use is refused. Raise
    NotRead, and ChangedMeanwhile.
    """
    path = path.resolve()  # its log is beside the file, not beside a link to it
    try:
        for _ in range(TRIES - 1):
            try:
                return _rows(path, keys)
            except ChangedMeanwhile:
                processes.check()
        return _rows(path, keys)
    except OSError as error:
        raise NotRead(error.strerror or str(error)) from error


def _rows(path: Path, keys: Mapping[str, str | None]) -> IO[bytes]:
    log = path.with_name(f"{path.name}-wal")
    _require_no_journal(path)
    before = _stamp(path)
    if _header(log):
        with _copied(path, log) as copy:
            size = sum(file.stat().st_size for file in copy.parent.iterdir())
            return processes.run(
                READER, [str(copy), True, dict(keys)], limits=_limits(size), writable=[copy.parent]
            )
    found = processes.run(READER, [str(path), False, dict(keys)], limits=_limits(before[0]), readable=[path])
    try:
        _require_no_journal(path)
        if before != _stamp(path) or _header(log):
            raise ChangedMeanwhile("it changed while it was read")
    except BaseException:
        found.close()
        raise
    return found


def _stamp(file: Path) -> tuple[int, int, int]:
    """Return facts that change when a file is written to. Raise NotRead unless it is a regular file."""
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise NotRead(f"{file.name} is not a regular file")
    return found.st_size, found.st_mtime_ns, found.st_ino


def _header(log: Path) -> bytes:
    """Return the header of a log; empty if there is none, or an empty one. Raise NotRead, and OSError."""
    try:
        with _opened(log) as file:
            return file.read(32)  # another one after each restart of the log
    except FileNotFoundError:
        return b""


def _opened(file: Path) -> IO[bytes]:
    """Open a regular file. Raise NotRead for a link or a pipe, which could lead elsewhere or never end."""
    _stamp(file)
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def _require_no_journal(path: Path) -> None:
    journal = path.with_name(f"{path.name}-journal")
    try:
        with _opened(journal) as file:
            is_used = file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return
    if is_used:
        raise NotRead(
            f"{journal.name} is beside it, so a change was not completed: "
            "start and end the program that wrote it, and import again"
        )


@contextmanager
def _copied(path: Path, log: Path) -> Iterator[Path]:
    """Yield a copy of a file with its log, alone in a directory. Raise ChangedMeanwhile.

    The program that writes it may continue. The log is copied after the file and holds every page of it that
    a checkpoint has changed meanwhile, unless it was restarted.
    """
    _remove_left()
    with tempfile.TemporaryDirectory(prefix=COPIES) as directory:
        copy = Path(directory, "copy").resolve()
        begins = _header(log)
        inode = _stamp(path)[2]
        try:
            _copy(path, copy)
            _copy(log, copy.with_name(f"{copy.name}-wal"))
        except FileNotFoundError as error:
            raise ChangedMeanwhile("it changed while it was read") from error
        headers = {begins, _header(copy.with_name(f"{copy.name}-wal")), _header(log)}
        if len(headers) > 1 or _stamp(path)[2] != inode:
            raise ChangedMeanwhile("it changed while it was read")
        yield copy


def _copy(file: Path, to: Path) -> None:
    with _opened(file) as source, to.open("xb") as target:
        while chunk := source.read(processes.CHUNK_BYTES):
            processes.check()
            target.write(chunk)


# Processes that were killed have left their copies.
def _remove_left() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{COPIES}*"):
        try:
            found = directory.lstat()
        except FileNotFoundError:
            continue
        if found.st_uid == os.getuid() and found.st_mtime < time.time() - LEFT_AFTER_S:
            shutil.rmtree(directory, ignore_errors=True)


def _limits(size: int) -> ProcessLimits:
    cpu_s = min(CPU_S + size // BYTES_PER_CPU_S, CPU_MAX_S)
    return ProcessLimits(
        memory_bytes=1024**3,
        cpu_s=cpu_s,
        wall_s=cpu_s * WALL_TIMES,
        # JSON has six bytes for some characters, and repeats the names of columns. Default values, of which
        # the reader lets SPARE_BYTES pass, take no space in the file.
        output_bytes=8 * size + SPARE_BYTES,
    )
