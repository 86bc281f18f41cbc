"""Restoring into a SQLite file: the restored one is written beside it, and gets its name in one step."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from django.db.backends.base.base import BaseDatabaseWrapper

from conversations import synced_files
from conversations.engines.sqlite3 import marks
from convserver.backups import directories, sqlite_file, stores
from convserver.backups.failures import BackupError, reason
from convserver.backups.manifest import Manifest
from convserver.serving.server_lock import ServerLock

COMPANIONS = ("-wal", "-shm", "-journal", marks.ENDING)
RESTORING = ".restoring-"
"""Part of the name of a file that is being written, before a time."""
KEPT = ".before-"
"""Part of the name of a store that was replaced, before a time."""
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""With these errors nothing can use a file."""
IN_USE = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteTarget:
    """The SQLite file of the settings, as something that a backup may replace."""

    kept: str | None = None

    def __init__(self, live: Path, stamp: str) -> None:
        self._live = live.resolve()
        self._restored = self._live.with_name(f"{self._live.name}{RESTORING}{stamp}")
        self._aside = self._live.with_name(f"{self._live.name}{KEPT}{stamp}")
        self.name = str(self._live)
        self.is_new = not self._live.exists()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run no second restore, nor one beside a server. Raise BackupError if the file is in use."""
        try:
            self._live.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BackupError(f"{self._live.parent} cannot be made: {error.strerror}.") from error
        with closing(ServerLock(self._live)) as lock:
            if not lock.take():
                raise self._in_use()
            self._require_unused()
            self._remove_left()
            yield

    @contextmanager
    def loading(self, manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
        """Copy the backup's file beside the live one, and put it in its place at the end of the block.

        If the block fails or the process is killed, the live file is as it was.
        """
        try:
            sqlite_file.put(dumped, self._restored, manifest)
            with stores.copy_at(self._restored) as store:
                yield store
            synced_files.sync(self._restored)
            self._require_unused()
            self._put_in_place()
        finally:
            for left in _with_companions(self._restored):
                left.unlink(missing_ok=True)

    def _put_in_place(self) -> None:
        """Give the restored file the name of the live one, which is kept under another name."""
        if self._live.exists():
            present = self._live.stat()
            self._restored.chmod(stat.S_IMODE(present.st_mode))
            if (present.st_uid, present.st_gid) != (os.geteuid(), os.getegid()):  # as with `sudo`
                os.chown(self._restored, present.st_uid, present.st_gid)
            self._aside.hardlink_to(self._live)  # so at every moment there is a whole store under its name
            self.kept = str(self._aside)
        # Those of a damaged or a missing file: SQLite finds them by their names, and would take them for
        # those of the restored one.
        for found, kept in zip(_with_companions(self._live), _with_companions(self._aside), strict=True):
            if found != self._live and found.exists():
                found.rename(kept)
        synced_files.sync(self._live.parent)
        self._restored.replace(self._live)
        synced_files.sync(self._live.parent)

    def _require_unused(self) -> None:
        """Raise BackupError if another program has the file open. Afterwards it has no companions.

        A damaged file passes: it may be replaced.
        """
        if not self._live.exists():
            return
        marks.set_foreign_log_aside(str(self._live))  # or the look would apply it to the file that is kept
        try:
            with closing(
                sqlite3.connect(sqlite_file.uri(self._live), uri=True, isolation_level=None, timeout=1)
            ) as live:
                # With its write-ahead log a connection locks the file itself in this mode, which every other
                # one that is open prevents.
                live.execute("PRAGMA locking_mode = EXCLUSIVE")
                live.execute("BEGIN EXCLUSIVE")
                live.execute("COMMIT")
                live.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary one; 0 if the driver complains
            if code in IN_USE:
                raise self._in_use() from error
            if code not in DAMAGED:
                raise BackupError(
                    f"The database {self._live} cannot be opened to be replaced: {reason(error)}. Nothing "
                    "was changed."
                ) from error

    def _in_use(self) -> BackupError:
        return BackupError(
            f"The database {self._live} is in use: stop the server, and every other program that has it "
            "open, and try again. Nothing was changed."
        )

    def _remove_left(self) -> None:
        """Remove what killed restores have left: files, and a second name of the live one."""
        for left in self._live.parent.glob(f"{self._live.name}{RESTORING}*"):
            left.unlink()
        for kept in self._live.parent.glob(f"{self._live.name}{KEPT}*"):
            with suppress(FileNotFoundError):
                if kept.samefile(self._live):
                    kept.unlink()


@contextmanager
def scratch(manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
    """Copy a backup's file into a new directory beside the backup, and remove it at the end of the block."""
    with directories.scratch_in(dumped.resolve().parent.parent) as workspace:
        sqlite_file.put(dumped, workspace / dumped.name, manifest)
        with stores.copy_at(workspace / dumped.name) as store:
            yield store


def _with_companions(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}{ending}") for ending in ("", *COMPANIONS)]
