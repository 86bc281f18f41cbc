"""Directories of backups: they get their names when they are complete, and old ones are removed."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import mkdtemp

from conversations import synced_files
from convserver.backups import manifest
from convserver.backups.failures import BackupError

NAME = re.compile(r"convserver-\d{8}T\d{6}Z(-\d+)?")
UNFINISHED = ".unfinished"  # ends the name of a directory that is being written


def stamp(now: datetime) -> str:
    """Return a time, in UTC, as names of files have it."""
    return f"{now:%Y%m%dT%H%M%SZ}"


@dataclass(slots=True)
class Draft:
    """A directory that is being written."""

    path: Path  # where it is; another one once it is complete


@contextmanager
def new_in(directory: Path, name: str) -> Iterator[Draft]:
    """Return a new directory to fill; it gets its name at the end of the block, once all is on the disk.

    If the block fails, nothing is left. What a killed process has left is removed.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_left(directory)
        # Hidden and with an ending: neither `keep_newest` nor a person takes it for a backup.
        draft = Draft(directory / f".{name}.{secrets.token_hex(4)}{UNFINISHED}")
        draft.path.mkdir(mode=0o700)
    except OSError as error:
        raise BackupError(f"Nothing can be written to {directory}: {error.strerror}.") from error
    unfinished = draft.path
    try:
        with _locked(unfinished):
            yield draft
        # The name comes last: after a crash a directory with it has all files, and these all bytes.
        for path in draft.path.iterdir():
            path.chmod(0o600)
            synced_files.sync(path)
        synced_files.sync(draft.path)
        draft.path = draft.path.rename(_free(directory, name))
        synced_files.sync(directory)
    except OSError as error:
        raise BackupError(f"The backup cannot be written to {directory}: {error.strerror}.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def scratch_in(directory: Path) -> Iterator[Path]:
    """Return a new directory that is removed at the end of the block, or by the next one in its place.

    Raise BackupError if there can be none.
    """
    try:
        path = Path(mkdtemp(prefix=".convserver-verify.", suffix=UNFINISHED, dir=directory))
    except OSError as error:
        raise BackupError(f"Nothing can be written to {directory}: {error.strerror}.") from error
    try:
        with _locked(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep others from removing a directory in use."""
    # The system releases the lock of a killed process, so that what it left can be removed.
    lock = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def complete_in(directory: Path) -> list[Path]:
    """Return the complete backups in a directory, the newest first."""
    found = [
        each for each in directory.iterdir() if NAME.fullmatch(each.name) and (each / manifest.NAME).is_file()
    ]
    return sorted(found, key=lambda path: path.name, reverse=True)


def keep_newest(directory: Path, count: int) -> list[Path]:
    """Remove all complete backups but the newest; return those that were removed."""
    older = complete_in(directory)[count:]
    for each in older:
        shutil.rmtree(each)
    return older


def _free(directory: Path, name: str) -> Path:
    """Return a path that does not exist yet."""
    path, number = directory / name, 1  # two backups may begin in one second
    while os.path.lexists(path):
        number += 1
        path = directory / f"{name}-{number}"
    return path


def remove_left(directory: Path) -> None:
    """Remove what killed processes have left in a directory; what is being written is locked."""
    for left in directory.glob(f".convserver-*{UNFINISHED}"):
        with suppress(OSError):  # BlockingIOError is one: another process is writing it
            opened = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(opened)
