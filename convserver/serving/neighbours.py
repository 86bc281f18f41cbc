"""Several servers on one SQLite file: the first one runs the agents, the others only serve."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

ENDING = ".serving-lock"
"""Of the file beside the database that the server holds locked which runs the agents."""


def lock_of(database: Path) -> Path:
    """Return the file whose lock is the right to run the agents of this database."""
    real = database.resolve()  # servers may know it by several names
    return real.with_name(f"{real.name}{ENDING}")


class FirstPlace:
    """The right to run the agents of one SQLite file, until `close` or the end of the process."""

    def __init__(self, database: Path) -> None:
        self._path = lock_of(database)
        self._lock: IO[str] | None = None
        self._has_asked = False

    def take(self) -> bool:
        """Say whether this process has the right, and take it if nobody has."""
        try:
            if self._lock is None:
                self._lock = self._path.open("a")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # at first: a directory that cannot be written, or a file system without locks
            return not self._has_asked
        finally:
            self._has_asked = True
        return True

    def close(self) -> None:
        """Give the right back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
