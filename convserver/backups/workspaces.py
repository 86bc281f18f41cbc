"""The files of conversations in a backup: one compressed tar file, with a directory for each workspace."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.exceptions import StoreUnavailable
from convserver.backups import directories
from convserver.backups.failures import BackupError
from convserver.backups.manifest import CHUNK_BYTES, Manifest, WorkspaceFiles
from sessions_app.models import Workspace
from sessions_app.workspaces import records
from sessions_app.workspaces.copies import COPY_LIMITS, CopiedFiles, CopyReader, CopyRefused, CopyWriter

NAME = "workspaces.tar.gz"


def rows_of(store: BaseDatabaseWrapper) -> list[Workspace]:
    """Return the workspaces that a store names."""
    rows = Workspace.objects.using(store.alias)
    return list(rows.filter(users_directory="").order_by("pk"))


def write(rows: Iterable[Workspace], target: Path) -> WorkspaceFiles:
    """Write the files of workspaces. Raise BackupError if they cannot be read, and OSError.

    Only the directory of files of each: what is kept beside it can be made again, or is a copy.
    """
    with target.open("xb") as file:
        try:
            # Twice, for those that were made when the limit was higher.
            with CopyWriter(file, 2 * records.limits().bytes) as writer:
                for row in rows:
                    with records.opened_by(row, COPY_LIMITS) as tree:
                        if tree is not None:  # else a purge has removed it meanwhile
                            writer.add(row.directory, tree)
        except StoreUnavailable as error:
            raise BackupError(f"{error} Nothing was backed up.") from error
    held = writer.copied
    return WorkspaceFiles(
        workspaces=held.workspaces,
        entries=held.entries,
        bytes=held.bytes,
        changed=writer.changed,
        unread=writer.unread,
    )


def compare(directory: Path, found: Manifest, store: BaseDatabaseWrapper) -> None:
    """Read the whole archive of a backup. Raise BackupError if it is not what the manifest says."""
    if found.workspaces is not None:
        _read(directory, found, store, into=None)


class EmptyPlace:
    """An empty place for all workspaces, left empty if the block fails. Raise BackupError for another one."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._put: list[Path] = []
        self._require_empty()

    def __enter__(self) -> EmptyPlace:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None and self._put:
            (self._place / records.MARKER).unlink(missing_ok=True)
            for each in self._put:
                shutil.rmtree(each, ignore_errors=True)

    def put(self, directory: Path, found: Manifest, store: BaseDatabaseWrapper) -> None:
        """Put the files of a backup there, whose rows are in the store. Raise BackupError or OSError."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Aside, in the same file system, so that a restore that is killed leaves nothing that looks whole.
        directories.remove_left(self._place)
        with directories.scratch_in(self._place) as aside:
            opened = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _read(directory, found, store, into=opened)
            finally:
                os.close(opened)
            os.sync()  # all of them at once: each by itself takes far longer
            self._require_empty()  # again: minutes have passed
            for each in sorted(aside.iterdir()):
                self._put.append(each.rename(self._place / each.name))
        # Last: a server that finds no mark there takes no file for gone.
        records.mark(self._place)

    def _require_empty(self) -> None:
        try:
            names = [each.name for each in self._place.iterdir()] if self._place.exists() else []
        except OSError as error:
            raise BackupError(f"{self._place} cannot be read: {error.strerror}.") from error
        ours = (records.MARKER, "lost+found")
        if [each for each in names if each not in ours and not each.endswith(directories.UNFINISHED)]:
            raise BackupError(
                f"The place of the files of conversations, {self._place}, is not empty: move what is in it "
                "away, name another place (CONVSERVER_WORKSPACES), or restore the database alone "
                "(--without-workspaces). Nothing was changed."
            )


class _DigestedFile:
    """A file that is read once, from its beginning to its end."""

    def __init__(self, file: IO[bytes]) -> None:
        self.digest = hashlib.sha256()
        self._file = file

    def read(self, size: int = CHUNK_BYTES) -> bytes:
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece


def _read(directory: Path, found: Manifest, store: BaseDatabaseWrapper, *, into: int | None) -> None:
    path, held = directory / NAME, found.workspaces
    if held is None or NAME not in found.files:
        raise BackupError(f"{directory} has no {NAME}: choose another backup.")
    known = Workspace.objects.using(store.alias).filter(users_directory="")
    expected = CopiedFiles(held.workspaces, held.entries, held.bytes)
    reader = CopyReader(into, expected, lambda name: known.filter(directory=name).exists())
    with path.open("rb") as opened:
        source = _DigestedFile(opened)
        try:
            reader.read(source)
        except CopyRefused as error:
            raise BackupError(f"{path} is no archive of a backup. {error} Choose another backup.") from error
        while source.read():  # what is left
            pass
    # The comparison with the manifest was minutes ago; these are the bytes that are restored.
    if source.digest.hexdigest() != found.files[NAME].sha256:
        raise BackupError(f"{path} changed while it was read: try again, or choose another backup.")
