"""The lock that keeps a second server, and a restore, away from a SQLite file that a server uses."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

ENDING = ".serving-lock"  # of the file beside the database that its server holds locked


def lock_of(database: Path) -> Path:
    """Return the file whose lock is the right to serve this database."""
    real = database.resolve()  # servers may know it by several names
    return real.with_name(f"{real.name}{ENDING}")


class ServerLock:
    """The right to serve one SQLite file, until `close` or the end of the process, however it ends."""

    def __init__(self, database: Path) -> None:
        self._path = lock_of(database)
        self._file: IO[str] | None = None

    def take(self) -> bool:
        """Take the right; return False if another process has it."""
        try:
            if self._file is None:
                self._file = self._path.open("a")  # never removed: a second server would lock another file
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            # A directory that cannot be written, or a file system without locks: a lock that no process can
            # have must not keep the only server from its database.
            return True
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
