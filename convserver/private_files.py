"""The rights of the server's files: only the account that runs the server reads what users said.

The database holds every event and the hashes of passwords, the data directory holds the secret key.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from convserver.serving.server_lock import lock_of

logger = logging.getLogger(__name__)

OTHERS = stat.S_IRWXG | stat.S_IRWXO  # the rights of the group and of all others
# SQLite gives a new file beside the database the rights of the database.
COMPANIONS = ("", "-wal", "-shm", "-journal", "-mark")


def create_privately() -> None:
    """Give the group and others no rights to what this process creates from now on."""
    os.umask(OTHERS)


def protect(data_dir: Path, database: Path | None) -> None:
    """Take the rights of the group and of others from the data directory, its files and the database.

    `database` is SQLite's file, if there is one. Files of another account are left as they are. The log says
    what was changed and what was not.
    """
    open_to_others = [path for path in _private_paths(data_dir, database) if _is_open(path)]
    repaired = [str(path) for path in open_to_others if _is_repaired(path)]
    left = [str(path) for path in open_to_others if str(path) not in repaired]
    if repaired:
        logger.warning(
            "Other accounts of this machine had rights to files of the server; they have none now: %s",
            ", ".join(repaired),
        )
    if left:
        logger.warning(
            "Other accounts of this machine have rights to files of the server, which cannot take them away: "
            "%s. Let the account that runs the server own these files, or run chmod go= on them.",
            ", ".join(left),
        )


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OTHERS)
    except OSError:  # there is none; what needs it reports that
        return False


def _is_repaired(path: Path) -> bool:
    """Take the rights of others away, and say whether that was possible."""
    try:
        found = path.stat()
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX:  # as /tmp, which many share
            return False
        path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
    except OSError:  # as on a disk that can only be read
        return False
    return True


def _private_paths(data_dir: Path, database: Path | None) -> Iterator[Path]:
    yield data_dir
    names = {data_dir / "secret_key", data_dir / "last_database"}
    if database is not None:
        names |= {database.with_name(f"{database.name}{ending}") for ending in COMPANIONS}
        names.add(lock_of(database))
    yield from sorted(names)
