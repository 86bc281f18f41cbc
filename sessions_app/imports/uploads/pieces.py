"""The bytes of uploaded files, where the process that imports a file can read them.

With SQLite there is one machine: a file in the data directory. With PostgreSQL the processes may be on
several machines, which have the database in common: rows, of which the one that imports makes a file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from conversations import synced_files
from conversations.engines import failures
from conversations.exceptions import StoreUnavailable
from conversations.outages import Outage
from sessions_app.imports.uploads.problems import FileTooLarge, NoRoom, WrongOffset
from sessions_app.models import ImportPiece, ImportRun, ImportRunQuerySet, ImportState

# A full disk would stop the database, so no piece is taken, and nothing unpacked, that needs the last of it.
RESERVE_BYTES = 256 * 1024 * 1024
PIECE_MAX_BYTES = 4 * 1024 * 1024
# The age that a file made here gets: readers leave out what a program may still be writing.
SETTLED_S = 3600
DIRECTORY = "imports"
"""In the data directory."""
FILE, UNPACKED = "file", "unpacked"
"""Below the directory of an attempt: the file, if it is made from rows, and what was in it."""

_remaining = Outage(__name__, "Files of imports could not be removed")


def put(run: ImportRun, offset: int, content: bytes) -> int:
    """Store a piece; return how many bytes of the file are here now.

    What is here already is not stored again, so a piece may be repeated. Raise WrongOffset for one that
    leaves a gap, or for a file that takes no more; FileTooLarge; NoRoom; StoreUnavailable if it cannot be
    written.
    """
    if len(content) > PIECE_MAX_BYTES:
        raise FileTooLarge(f"The piece is too large: the limit is {PIECE_MAX_BYTES} bytes.")
    if offset + len(content) > run.size:
        raise FileTooLarge(f"The piece goes beyond the end of the file, which has {run.size} bytes.")
    if offset > run.received:
        raise WrongOffset(f"The next piece begins at {run.received}.", received=run.received)
    new = content[run.received - offset :]
    if not new:
        return run.received
    if run.state != ImportState.UPLOADING:
        raise WrongOffset("This import takes no more of its file.", received=run.received)
    require_room(len(new))
    try:
        is_stored = _write(run, new) if _are_files() else _insert(run, new)
    except OSError as error:
        raise StoreUnavailable(f"The file cannot be stored: {error.strerror}.") from error
    if not is_stored:  # another request has stored this piece, or the upload has ended
        now = ImportRun.objects.filter(pk=run.pk).first()
        received = now.received if now is not None else 0
        if now is not None and now.state == ImportState.UPLOADING and received >= offset + len(content):
            return received
        raise WrongOffset("The file has changed meanwhile: ask where it stands.", received=received)
    return run.received + len(new)


def require_room(size: int) -> None:
    """Raise NoRoom if this many more bytes would leave too little room on the disk."""
    if failures.free_bytes(_root()) < size + RESERVE_BYTES:
        raise NoRoom("The server's disk has no room for this file. Ask its operator to free some space.")


@contextmanager
def local_file(run: ImportRun) -> Iterator[Path]:
    """Give the whole file; what this attempt has made here of it is removed afterwards. Raise OSError."""
    _remove(_attempt_of(run))
    try:
        path = directory_of(run) / run.file_name if _are_files() else _assembled(run)
        os.utime(path, (time.time() - SETTLED_S,) * 2)
        yield path
    finally:
        _remove(_attempt_of(run))


def discard(run: ImportRun) -> None:
    ImportPiece.objects.filter(run_id=run.pk).delete()
    for directory in (directory_of(run), *_root().glob(f"{run.public_id}-*")):
        _remove(directory)


def names() -> list[str]:
    """Return the names of the directories of imports that are here."""
    return [each.name for each in _root().iterdir()] if _root().is_dir() else []


def names_of(run: ImportRun) -> set[str]:
    """Return the names of the directories that an import needs."""
    return {directory_of(run).name, _attempt_of(run).name}


def discard_directories(names: Collection[str]) -> None:
    """Remove directories; one that cannot be removed does not keep the others."""
    for name in names:
        _remove(_root() / name)


def directory_of(run: ImportRun) -> Path:
    """Return the directory of a file, whether or not it is there."""
    return _root() / run.public_id


def unpacked_of(run: ImportRun) -> Path:
    """Return where this attempt puts what is in the file, whether or not it is there."""
    return _attempt_of(run) / UNPACKED


def private_file(path: Path) -> int:
    """Open a file that only this account can read, for writing; return its descriptor. Raise OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _root() -> Path:
    directory: Path = settings.CONFIGURATION.data_dir / DIRECTORY
    return directory


def _attempt_of(run: ImportRun) -> Path:
    # Not that of an earlier attempt, which may go on until it knows that it is late.
    return _root() / f"{run.public_id}-{run.attempt}"


def _remove(directory: Path) -> None:
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except Exception as error:  # RecursionError, which is not ignored
        _remaining.failed(error, directory=directory.name)


def _are_files() -> bool:
    return connection.vendor == "sqlite"


def _write(run: ImportRun, content: bytes) -> bool:
    """Write beyond what is acknowledged, then acknowledge it. Raise OSError."""
    synced_files.make_directory(directory_of(run))
    path = directory_of(run) / run.file_name
    descriptor = private_file(path)
    with os.fdopen(descriptor, "wb") as file:
        # Of two requests with one piece the second finds it acknowledged, and changes nothing of it.
        fcntl.flock(file, fcntl.LOCK_EX)
        if not _waiting_for(run).exists():
            return False
        # Over the rest of a piece that was cut off before it was acknowledged.
        file.seek(run.received)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
        if run.received == 0:  # the name of the file, too, must outlive a power cut
            synced_files.sync(path.parent)
        return _advance(run, len(content))


def _insert(run: ImportRun, content: bytes) -> bool:
    with transaction.atomic():
        # First, since it locks the row: of two requests with one piece the second finds nothing to change.
        if not _advance(run, len(content)):
            return False
        ImportPiece.objects.create(run_id=run.pk, offset=run.received, content=content)
    return True


def _advance(run: ImportRun, size: int) -> bool:
    return bool(_waiting_for(run).update(received=F("received") + size, touched_at=Now()))


def _waiting_for(run: ImportRun) -> ImportRunQuerySet:
    """Return the row as long as it waits for the piece that it waited for when it was read."""
    return ImportRun.objects.filter(pk=run.pk, state=ImportState.UPLOADING, received=run.received)


def _assembled(run: ImportRun) -> Path:
    path = _attempt_of(run) / FILE / run.file_name
    with os.fdopen(private_file(path), "wb") as file:
        # One at a time: together they may be gigabytes.
        for pk in list(ImportPiece.objects.of(run.pk).values_list("pk", flat=True)):
            file.write(ImportPiece.objects.values_list("content", flat=True).get(pk=pk))
    return path
