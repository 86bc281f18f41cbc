"""SQLite files of strangers: their tables' rows, read by a confined process."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from conversations.confined import processes
from conversations.confined.processes import Limits, NotRead

READER = Path(__file__).with_name("sqlite_reader.py")
MEMORY_BYTES = 1024 * 1024 * 1024
CPU_S = 20
BYTES_PER_CPU_S = 2 * 1024 * 1024
"""A large file may take as much longer. On a slow machine some 20 MB are read in a second."""
WALL_TIMES = 3
SPARE_BYTES = 64 * 1024 * 1024
OUTPUT_TIMES = 8
"""JSON has six bytes for some characters, and repeats the names of columns."""


class ChangedMeanwhile(NotRead):
    """The file was written to while it was read."""


def rows(path: Path, keys: Mapping[str, str | None]) -> IO[bytes]:
    """Return the rows of these tables, as `sqlite_reader.read` prints them; `keys` has each key column.

    The file and what is beside it are neither changed nor locked. What its write-ahead log holds counts. A
    rollback journal is never opened, for it can name any file to be deleted; one that is in use is refused.
    Raise NotRead, and ChangedMeanwhile.
    """
    try:
        log = path.with_name(f"{path.name}-wal")
        before = _stamps(path, log)
        _require_no_journal(path)
        with _alone(path, log if before[1] and before[1][0] else None) as (readable, is_copy):
            found = processes.run(
                READER,
                [str(readable), is_copy, dict(keys)],
                limits=_limits(sum(stamp[0] for stamp in before if stamp)),
                readable=[] if is_copy else [readable],
                writable=[readable.parent] if is_copy else [],
            )
        if before != _stamps(path, log):
            found.close()
            raise ChangedMeanwhile("it changed while it was read")
    except OSError as error:
        raise NotRead(error.strerror or str(error)) from error
    return found


def _stamps(*files: Path) -> list[tuple[int, int, int] | None]:
    """Return what changes when a file is written to; None for a missing one. Raise NotRead for a link."""
    return [_stamp(file) for file in files]


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.lstat() if file.name.endswith("-wal") else file.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise NotRead(f"{file.name} is not a regular file")
    return found.st_size, found.st_mtime_ns, found.st_ino


def _require_no_journal(path: Path) -> None:
    journal = path.with_name(f"{path.name}-journal")
    try:
        with journal.open("rb") as file:
            is_used = file.read(1) not in (b"", b"\0")
    except FileNotFoundError:
        return
    if is_used:
        raise NotRead(
            f"{journal.name} is beside it, so a change was not completed: "
            "start and end the program that wrote it, and import again"
        )


@contextmanager
def _alone(path: Path, log: Path | None) -> Iterator[tuple[Path, bool]]:
    """Yield the file, or a copy with its log in an empty directory; and whether it is a copy."""
    if log is None:
        yield path.resolve(), False
        return
    with tempfile.TemporaryDirectory(prefix="convserver-") as directory:
        for file, name in ((path, "copy"), (log, "copy-wal")):
            processes.check()
            shutil.copyfile(file, Path(directory, name))
        yield Path(directory, "copy").resolve(), True


def _limits(size: int) -> Limits:
    cpu_s = CPU_S + size // BYTES_PER_CPU_S
    return Limits(
        memory_bytes=MEMORY_BYTES,
        cpu_s=cpu_s,
        wall_s=cpu_s * WALL_TIMES,
        output_bytes=size * OUTPUT_TIMES + SPARE_BYTES,
    )
