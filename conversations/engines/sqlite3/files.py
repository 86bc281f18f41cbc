"""Whether the SQLite file at the configured path is still the one that was opened.

SQLite continues with a file that was removed or replaced. Everything that it commits from then on is lost
when the last process closes that file.
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
    "stop the server, put the right file into its place with its own -wal and -shm, or if it has none (as a "
    "backup) move away those that are there, and start the server again."
)
READ_ONLY = (
    "The files of the database are read-only, so nothing can be stored: "
    "let the user that runs the server write to them and to their directory."
)
EMPTIED = (
    "The file of the database was emptied while the server ran, so nothing more is stored: "
    "stop the server, restore a backup, and start it again."
)
COMPANIONS = ("-wal", "-shm")  # the files that SQLite keeps beside the database while any process has it open


class FileGone(sqlite3.OperationalError):
    """The file at the path is not the one that was opened, or it is empty."""


class CommittedAway(FileGone):
    """The file was gone after a commit: the commit counts if the file comes back."""


class Identity(NamedTuple):
    """The device and inode of a file, which its copies do not share."""

    device: int
    inode: int


class OpenedFiles:
    """A database file and those beside it, as one connection has opened them."""

    def __init__(self, path: str, expected: Identity | None = None) -> None:
        """Record the files at the path. Raise FileGone if there is none, or another one than expected.

        A file that was at the path before a connection opened it, and still is, is the one it has opened.
        """
        self._expected = {path: identity(path)}
        if expected not in (None, self._expected[path]):
            raise FileGone(GONE)
        for companion in (path + ending for ending in COMPANIONS):
            if (found := found_at(companion)) is not None:  # with another journal mode they do not exist
                self._expected[companion] = found
        _first_opened.setdefault(path, self._expected[path])
        if Path(path).stat().st_size:
            _filled.add(path)
        with _lock:
            _opened.setdefault(path, WeakSet()).add(self)

    def require(self) -> None:
        """Raise FileGone unless all of them are still at their paths."""
        for path, expected in self._expected.items():
            if found_at(path) != expected:
                raise FileGone(GONE)


_first_opened: dict[str, Identity] = {}  # by path: the only file in which this process stores anything
# Paths of files that had content: if one is empty, SQLite would take it for a new database.
_filled: set[str] = set()

_opened: dict[str, WeakSet[OpenedFiles]] = {}  # by path: the files of the open connections
_lock = threading.Lock()


def require_opened(path: str) -> None:
    """Raise FileGone if a file of an open connection has changed: then no file may be opened."""
    with _lock:
        opened = list(_opened.get(path, ()))
    for each in opened:
        each.require()


def is_known(path: str) -> bool:
    """Return whether this process has opened the path before."""
    return path in _first_opened


def identity(path: str) -> Identity:
    """Return the identity of the file. Raise FileGone if it is missing, or not the one opened first."""
    found = found_at(path)
    if found is None or found != _first_opened.get(path, found):
        raise FileGone(GONE)
    return found


def can_be_written(path: str) -> bool:
    """Return whether this process may write to the file and its companions, or create missing ones.

    A connection that was opened earlier may be able to write nevertheless. Without the directory this has no
    meaning.
    """
    if path.startswith(("file:", ":memory:")):  # tests: no file
        return True
    found = [each for each in (path, *(path + ending for ending in COMPANIONS)) if Path(each).exists()]
    directory = Path(path).parent
    if len(found) <= len(COMPANIONS) and directory.exists() and not os.access(directory, os.W_OK):
        return False
    return all(os.access(each, os.W_OK) for each in found)


def found_at(path: str) -> Identity | None:
    """Return the identity of the file; None if there is none. Raise FileGone if it was emptied."""
    try:
        found = os.stat(path)  # noqa: PTH116 - three times for each commit: without an object each
    except OSError:
        return None
    if found.st_size == 0 and path in _filled:
        raise FileGone(EMPTIED)
    return Identity(found.st_dev, found.st_ino)
