"""The SQLite library of this process: one without the defect that can lose a committed write.

Versions 3.7.0 to 3.51.2 can lose committed writes in WAL mode. A checkpoint that begins while another
connection commits and restarts the log takes the new log's content for copied (SQLite calls it the
WAL-reset bug). 3.51.3 and 3.53.0 are corrected, and so are 3.44.6 and 3.50.7.
"""

from __future__ import annotations

import _sqlite3
import sys

BACKEND = "django.db.backends.sqlite3.base"

Version = tuple[int, ...]

FIRST: Version = (3, 7, 0)
# Ranges of versions with the correction, the end of each left out.
FIXED: list[tuple[Version, Version]] = [
    ((3, 44, 6), (3, 45)),
    ((3, 50, 7), (3, 51)),
    ((3, 51, 3), (3, 52)),
    ((3, 53), (99,)),
]


def is_affected(version: str) -> bool:
    """Return whether this version can lose a committed write."""
    numbers = tuple(map(int, version.split(".")))
    return numbers >= FIRST and not any(first <= numbers < end for first, end in FIXED)


def use_fixed() -> None:
    """Make `import sqlite3` return a library without the defect, if one is installed and needed.

    Two libraries in one process lose each other's locks on the same file. So this must run before any code
    that opens the database imports `sqlite3`; it does nothing once Django's backend is imported.
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
