"""Which database a data directory was used with last, so that a start on an empty one can say so."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from django.db.backends.base.base import BaseDatabaseWrapper

from conversations import synced_files

logger = logging.getLogger(__name__)

LAST_DATABASE = "last_database"
"""The file in the data directory; it names the database without user and password."""


def name_of(connection: BaseDatabaseWrapper) -> str:
    """Return what a person calls the database: its file, or its name and where it is."""
    found = connection.settings_dict
    if connection.vendor == "sqlite":
        return str(found["NAME"])
    place = found["HOST"] or "localhost"
    return f"{found['NAME']} at {place}:{found['PORT']}" if found["PORT"] else f"{found['NAME']} at {place}"


def record(name: str, data_dir: Path, *, is_new: bool) -> None:
    """Keep a database's name in the data directory; warn of one that is new where there was another.

    `is_new`: it had no tables until now.
    """
    before = _last(data_dir)
    # A database that is away, or an address that is wrong, looks like a first start: the server makes its
    # tables and works. It must not do that without a word where there have been conversations.
    if is_new and before is not None:
        logger.warning(_sentence(name, before, data_dir))
    if before != name:
        with suppress(OSError):  # then the next start cannot tell, and this one does all else
            synced_files.make_directory(data_dir)
            synced_files.write(data_dir / LAST_DATABASE, f"{name}\n")


def _last(data_dir: Path) -> str | None:
    try:
        return (data_dir / LAST_DATABASE).read_text().strip() or None
    except (OSError, ValueError):
        return None


def _sentence(name: str, before: str, data_dir: Path) -> str:
    if name == before:
        return (
            f"The database {name} is new and empty, but {data_dir} was used before: the database that was "
            "there is gone. If you still have it, stop the server, put it back, and start again."
        )
    return (
        f"The database {name} is new and empty, but {data_dir} was used with {before} before: conversations "
        "from there are not here. If you need them, stop the server, correct DATABASE_URL, and start again."
    )
