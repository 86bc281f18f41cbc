"""Whether another server already works on the same SQLite file: that is allowed, but seldom intended."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

logger = logging.getLogger(__name__)

LOCK = "serving.lock"
"""The file beside the database that every server of it holds a shared lock of."""


@contextmanager
def announced(database: Path) -> Iterator[None]:
    """Be known to later servers of this SQLite file during the block; warn if there is an earlier one."""
    try:
        lock = (database.parent / LOCK).open("a")
    except OSError:  # then later servers do not know of this one
        yield
        return
    with lock:  # which gives the lock back, as the end of the process does
        if not _is_alone(lock.fileno()):
            logger.warning(
                "Another server is running on %s. Both serve the same conversations. "
                "If that is not intended, stop one of them.",
                database,
            )
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def _is_alone(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
