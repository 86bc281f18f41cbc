"""Which other program holds the lock of a SQLite file, as far as Linux shows it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

LOCKS = Path("/proc/locks")
# Of the `-shm` file; SQLite's documentation of the format of the write-ahead log calls it WAL_WRITE_LOCK.
WRITE_LOCK_BYTE = 120


def other_writer(path: str) -> str | None:
    """Return the name and process id of the program that writes to this file; None if unknown.

    A program in another container has another file system, or is not visible here.
    """
    try:
        inode = Path(f"{path}-shm").stat().st_ino
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        # 1: POSIX  ADVISORY  WRITE 4242 fe:01:131074 120 120
        kind, _, mode, pid, file, first, last = line.split()[-7:]
        is_it = kind == "POSIX" and mode == "WRITE" and file.rpartition(":")[2] == str(inode)
        if (
            is_it
            and last.isdecimal()
            and int(first) <= WRITE_LOCK_BYTE <= int(last)
            and int(pid) != os.getpid()
        ):
            try:
                return f"{psutil.Process(int(pid)).name()}, process {pid}"
            except psutil.Error:
                return f"process {pid}"
    return None
