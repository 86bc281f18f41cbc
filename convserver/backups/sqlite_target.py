"""Restoring a SQLite file: it is written beside its place, and gets its name in one step."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from django.db.backends.base.base import BaseDatabaseWrapper

from conversations import synced_files
from conversations.engines.sqlite3 import marks
from convserver.backups import directories, stores
from convserver.backups.failures import BackupError
from convserver.backups.manifest import Manifest, pieces_of
from convserver.serving.server_lock import ServerLock

COMPANIONS = ("-wal", "-shm", "-journal", marks.ENDING)
RESTORING = ".restoring"  # ends the name of a file that is being written


class SqliteTarget:
    """The place of the SQLite file of the settings, where there is none. Raise BackupError otherwise."""

    def __init__(self, place: Path) -> None:
        self._place = place.resolve()
        self._restored = self._place.with_name(f"{self._place.name}{RESTORING}")
        self.name = str(self._place)
        self._require_empty()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run no second restore, nor one beside a server that starts. Raise BackupError."""
        try:
            self._place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BackupError(f"{self._place.parent} cannot be made: {error.strerror}.") from error
        with closing(ServerLock(self._place)) as lock:
            if not lock.take():
                raise BackupError(
                    f"A server or another restore uses {self.name}: stop it, and try again. Nothing was "
                    "changed."
                )
            self._remove_left()  # by a restore that was killed
            yield

    @contextmanager
    def loading(self, manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
        """Copy the backup's file beside its place, and put it there at the end of the block.

        If the block fails or the process is killed, the place stays empty.
        """
        try:
            _put(dumped, self._restored, manifest)
            with stores.copy_at(self._restored) as store:
                yield store
            synced_files.sync(self._restored)
            self._require_empty()  # again: minutes have passed, and a rename replaces a file silently
            self._restored.replace(self._place)
            synced_files.sync(self._place.parent)
        finally:
            self._remove_left()

    def _require_empty(self) -> None:
        """Raise BackupError if there is a file, or one that SQLite would read as part of a new one."""
        if found := [path.name for path in _with_companions(self._place) if path.exists()]:
            raise BackupError(
                f"The place of {self.name} is not empty: stop the server, and move {' and '.join(found)} "
                "away together, or name another place with --into. Nothing was changed."
            )

    def _remove_left(self) -> None:
        for left in _with_companions(self._restored):
            left.unlink(missing_ok=True)


@contextmanager
def scratch(manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
    """Copy a backup's file into a new directory beside the backup, and remove it at the end of the block."""
    # Not in the temporary directory, which seldom has room for a whole store.
    with directories.scratch_in(dumped.resolve().parent.parent) as workspace:
        _put(dumped, workspace / dumped.name, manifest)
        with stores.copy_at(workspace / dumped.name) as store:
            yield store


def _with_companions(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}{ending}") for ending in ("", *COMPANIONS)]


def _put(dumped: Path, target: Path, manifest: Manifest) -> None:
    """Write a copy of a backup's file, and sync it. Raise BackupError if it is not what the manifest says."""
    digest = hashlib.sha256()
    try:
        with target.open("xb") as out:
            for piece in pieces_of(dumped):
                digest.update(piece)
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror}.") from error
    # The comparison with the manifest was minutes ago; these are the bytes that are restored.
    if digest.hexdigest() != manifest.files[dumped.name].sha256:
        raise BackupError(f"{dumped} changed while it was read: try again, or choose another backup.")
