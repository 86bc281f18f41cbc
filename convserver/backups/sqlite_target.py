"""Restoring into a SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.db.backends.base.base import BaseDatabaseWrapper

from conversations import synced_files
from convserver.backups import sqlite_file, stores
from convserver.backups.failures import BackupError
from convserver.backups.manifest import Manifest


class SqliteTarget:
    """The SQLite file of the settings, as something that a backup may replace."""

    def __init__(self, live: Path, stamp: str) -> None:
        self._live = live.resolve()
        self._restored = self._live.with_name(f"{self._live.name}{sqlite_file.RESTORING}{stamp}")
        self._kept = self._live.with_name(f"{self._live.name}{sqlite_file.KEPT}{stamp}")

    @property
    def name(self) -> str:
        """What people call it."""
        return str(self._live)

    @property
    def is_new(self) -> bool:
        """Whether there is nothing to replace."""
        return not self._live.exists()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep everybody else away. Raise BackupError if somebody uses it."""
        try:
            self._live.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BackupError(f"{self._live.parent} cannot be made: {error.strerror}.") from error
        with sqlite_file.alone_with(self._live) as self._place:
            sqlite_file.remove_left(self._live)
            yield

    @contextmanager
    def loaded(self, manifest: Manifest, dumped: Path) -> Iterator[BaseDatabaseWrapper]:
        """Copy the backup's file beside the live one, and open the copy."""
        try:
            written = sqlite_file.put(dumped, self._restored)
        except OSError as error:
            raise BackupError(
                f"{self._restored} cannot be written: {error.strerror}. The present database was left as it "
                "was."
            ) from error
        if written != manifest.files[dumped.name].sha256:
            raise BackupError(f"{dumped} changed while it was read: try again, or choose another backup.")
        with stores.copy_at(self._restored) as connection:
            yield connection
        synced_files.sync(self._restored)

    def swap(self) -> str | None:
        """Put what was loaded in place, and return where what it replaces is kept."""
        kept = sqlite_file.swap(self._restored, self._place, self._kept)
        return None if kept is None else str(kept)

    def discard(self) -> None:
        """Remove what was loaded."""
        for ending in ("", *sqlite_file.COMPANIONS):
            with suppress(OSError):
                self._restored.with_name(f"{self._restored.name}{ending}").unlink(missing_ok=True)
