"""The file of a SQLite database: whether the one under the path is still the one that was opened.

SQLite goes on with a file that was removed or replaced under it, and everything that it commits from
then on is gone with the last process that has it open.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

GONE = (
    "The file of the database was removed or replaced while the server ran, so nothing more is stored: "
    "stop the server, put the right file into its place, and start it again."
)
READ_ONLY = (
    "The files of the database are read-only, so nothing can be stored: "
    "let the user that runs the server write to them and to their directory."
)
EMPTIED = (
    "The file of the database was emptied while the server ran, so nothing more is stored: "
    "stop the server, restore a backup, and start it again."
)
COMPANIONS = ("-wal", "-shm")
"""What SQLite keeps beside the file for as long as anybody has it open."""


class FileGone(sqlite3.OperationalError):
    """The file under the path is not the one that was opened, or nothing is in it any more."""


class Identity(NamedTuple):
    """What tells a file from any other, also from its own copy."""

    device: int
    inode: int


class Opened:
    """A file, and what is beside it, as one connection has opened them."""

    def __init__(self, path: str) -> None:
        """Note the files under the path. Raise FileGone if it is not there."""
        self._expected = {path: identity(path)}
        for companion in (path + ending for ending in COMPANIONS):
            if (found := _identity(companion)) is not None:  # a disk without them has another journal
                self._expected[companion] = found
        _first_opened.setdefault(path, self._expected[path])
        if Path(path).stat().st_size:
            _filled.add(path)
        with _lock:
            _opened.setdefault(path, WeakSet()).add(self)

    def require(self) -> None:
        """Raise FileGone unless all of them are still what stands under the path."""
        for path, expected in self._expected.items():
            if _identity(path) != expected:
                raise FileGone(GONE)


_first_opened: dict[str, Identity] = {}
"""By path: the one file that this process stores in."""
_filled: set[str] = set()
"""Paths of files that have held something: empty, one would be taken for a new database."""

_opened: dict[str, WeakSet[Opened]] = {}
"""By path: as what the connections that are open have it."""
_lock = threading.Lock()


def require_opened(path: str) -> None:
    """Raise FileGone if a file has changed that an open connection has: another one must not be begun."""
    with _lock:
        opened = list(_opened.get(path, ()))
    for each in opened:
        each.require()


def is_known(path: str) -> bool:
    """Say whether this process has opened the path before."""
    return path in _first_opened


def identity(path: str) -> Identity:
    """Return which file is there. Raise FileGone if none is, or not the one that was opened first."""
    found = _identity(path)
    if found is None or found != _first_opened.get(path, found):
        raise FileGone(GONE)
    return found


def can_be_written(path: str) -> bool:
    """Say whether this process may write the file and what is beside it, or make what is missing.

    A connection that was opened earlier may write all the same. Without the directory nothing is said.
    """
    if path.startswith(("file:", ":memory:")):  # tests: no file
        return True
    found = [each for each in (path, *(path + ending for ending in COMPANIONS)) if Path(each).exists()]
    directory = Path(path).parent
    if len(found) <= len(COMPANIONS) and directory.exists() and not os.access(directory, os.W_OK):
        return False
    return all(os.access(each, os.W_OK) for each in found)


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - three times for each commit: without an object each
    except OSError:
        return None
    if found.st_size == 0 and path in _filled:
        raise FileGone(EMPTIED)
    return Identity(found.st_dev, found.st_ino)
