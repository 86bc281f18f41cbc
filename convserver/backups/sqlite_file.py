"""SQLite: the copy of a database in use, and of a file that nothing uses."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from conversations import synced_files
from convserver.backups.failures import BackupError
from convserver.backups.manifest import Manifest, pieces_of

STEP_PAGES = 2000  # 8 MB at a time
REST_S = 0.002  # between two steps, for programs that write meanwhile


def copy(source: Path, target: Path) -> None:
    """Copy a database in use to a new file, all of one moment: when this begins."""
    with (
        closing(sqlite3.connect(uri(source), uri=True, isolation_level=None)) as live,
        closing(sqlite3.connect(target, isolation_level=None)) as copied,
    ):
        target.chmod(0o600)
        # A transaction that has read keeps its snapshot; without one, each write of others would make the
        # backup begin anew, and under load it would never end. What they write meanwhile stays in the
        # `-wal` file until the copy is complete.
        live.execute("BEGIN")
        live.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        copied.execute("PRAGMA synchronous = OFF")  # the whole file is synced at the end
        live.backup(copied, pages=STEP_PAGES, progress=lambda *_: time.sleep(REST_S))
    synced_files.sync(target)


def put(dumped: Path, target: Path, manifest: Manifest) -> None:
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


def uri(path: Path) -> str:
    """Return the name by which SQLite opens a file that exists."""
    # SQLite would make a missing file, and a backup of it would be empty.
    return f"file:{quote(str(path))}?mode=rw"
