"""Which library of SQLite the process uses: one without the defect that can lose a committed write.

Versions 3.7.0 to 3.51.2 can lose committed writes in WAL mode. A checkpoint that begins while another
connection commits and begins the log anew takes what is in the new log for copied (SQLite calls it the
WAL-reset bug). 3.51.3 and 3.53.0 do not, nor do 3.44.6 and 3.50.7, which have the correction as well.
"""

from __future__ import annotations

import _sqlite3
import sys

BACKEND = "django.db.backends.sqlite3.base"

Version = tuple[int, ...]

FIRST: Version = (3, 7, 0)
FIXED: list[tuple[Version, Version]] = [
    ((3, 44, 6), (3, 45)),
    ((3, 50, 7), (3, 51)),
    ((3, 51, 3), (3, 52)),
    ((3, 53), (99,)),
]
"""Ranges of versions with the correction, the end of each left out."""


def is_affected(version: str) -> bool:
    """Return whether this version can lose a committed write."""
    numbers = tuple(map(int, version.split(".")))
    return numbers >= FIRST and not any(first <= numbers < end for first, end in FIXED)


def use_fixed() -> None:
    """Make `import sqlite3` return a library without the defect, where one is installed and is needed.

    Two libraries in one process lose each other's locks on the same file. So this comes before the first
    import of `sqlite3` by anything that opens the database, and does nothing after that of Django's backend.
    """
    if not is_affected(_sqlite3.sqlite_version) or BACKEND in sys.modules:
        return
    try:
        import pysqlite3
    except ImportError:  # no wheel for this platform, see requirements/base.in
        return
    if not is_affected(pysqlite3.sqlite_version):
        sys.modules["sqlite3"] = pysqlite3
        sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2


def weakness() -> str | None:
    """Return a sentence if the library in use has the defect."""
    import sqlite3  # the one of `use_fixed`

    if not is_affected(sqlite3.sqlite_version):
        return None
    return (
        f"SQLite {sqlite3.sqlite_version} can lose a commit during a checkpoint (corrected in 3.51.3): "
        "install a newer one, or use PostgreSQL."
    )
