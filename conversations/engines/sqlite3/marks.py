"""The mark of a SQLite file: what is known, outside the write-ahead log, of the log and its newest commits.

The mark is a small file beside the database, and two numbers in the header of the database: an id (SQLite's
`application_id`), and a count that only grows (`user_version`). It serves two questions of a start.

Does the log (`-wal`) belong to this database? SQLite applies a log to any file that has its name. When a log
begins anew, all of the one before is in the database, so the header then has at least the count that was read
during the one before. A database with a lower count, or of another id, is another file: an older copy.

Does the log end before what was acknowledged? SQLite ends at the first frame that is damaged, and says
nothing. The mark has the newest number of an event; it is written without a sync, so it outlives the end of
the process, and not always a power cut.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from conversations.engines.sqlite3 import files

logger = logging.getLogger(__name__)

ENDING = "-mark"  # of the mark's name, which begins with the database's
DRAFT = ".new"  # of the name under which the mark is written, before it gets its own
ASIDE = ".not-of-this-file-"  # part of the name of a log that was set aside, before a time
# Each restarted log has a first salt greater by 1: this many later ones are recognized.
LATER_MAX = 10_000


class FileHeader(NamedTuple):
    """The two numbers in a database file itself, without its log."""

    id: int
    counted: int


class Salts(NamedTuple):
    """The two numbers that distinguish a log from the one before."""

    first: int
    second: int

    def is_same_or_later(self, known: Salts) -> bool:
        """Return whether this log is the known one, or has followed it."""
        later = (self.first - known.first) % 2**32
        return self == known or 0 < later <= LATER_MAX


@dataclass(frozen=True, slots=True)
class Missing:
    """Acknowledged events that are no longer in a database."""

    acknowledged: int  # the number of the newest event that was committed
    found: int  # the number of the newest event at the start
    at: str  # when the newest was committed, at the latest
    noticed: str  # the time of the start


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the mark's file."""

    id: int
    salts: tuple[int, int] | None = None
    # The database has at least this count if it belongs to the log with these salts, or a later one.
    base: int = 0
    events: int = 0  # the number of the newest event that was committed
    at: str = ""  # when that was seen
    missing: dict[str, Any] | None = None  # the `Missing` of an earlier start


def path_of(database: str | Path) -> Path:
    return Path(f"{database}{ENDING}")


def read(database: str | Path) -> Mark | None:
    """Return the mark; None if there is none, or it cannot be read."""
    try:
        return Mark(**json.loads(path_of(database).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write(database: str | Path, mark: Mark) -> None:
    """Write the mark: a process that ends meanwhile leaves the old one or the new one. Raise OSError."""
    path = path_of(database)
    draft = path.with_name(f"{path.name}{DRAFT}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(asdict(mark)))
    draft.replace(path)


def header_of(database: str | Path) -> FileHeader | None:
    """Return the numbers in the file itself; None if there is no database."""
    head = _beginning_of(Path(database), 100)
    if not head.startswith(b"SQLite format 3\0"):
        return None
    return FileHeader(id=int.from_bytes(head[68:72]), counted=int.from_bytes(head[60:64]))


def salts_of(database: str | Path) -> Salts | None:
    """Return the salts of the database's log; None if there is no log, or nothing in it."""
    head = _beginning_of(Path(f"{database}-wal"), 32)
    return Salts(int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) if head else None


def is_foreign(database: str | Path) -> bool:
    """Return whether the log beside a database certainly belongs to another file."""
    mark, header, salts = read(database), header_of(database), salts_of(database)
    if mark is None or mark.salts is None or header is None or salts is None:
        return False
    if not salts.is_same_or_later(Salts(*mark.salts)):
        return False
    return header.id != mark.id or header.counted < mark.base


def set_foreign_log_aside(database: str) -> None:
    """Rename the log of another file, which SQLite would apply to this one, and log a warning."""
    if not is_foreign(database):
        return
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = []
    for ending in (*files.COMPANIONS, ENDING):
        path = Path(f"{database}{ending}")
        with suppress(FileNotFoundError):
            path.rename(aside := path.with_name(f"{path.name}{ASIDE}{stamp}"))
            names.append(aside.name)
    logger.warning(
        "%s is an older or another file than the one that its log (-wal) belongs to: the log was set aside "
        "and nothing of it was applied. What was stored after this file was made is in the file that was "
        "there before, together with %s.",
        database,
        ", ".join(names),
    )


def _beginning_of(path: Path, size: int) -> bytes:
    """Return the first bytes of a file; nothing if it is shorter or cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            found = file.read(size)
    except OSError:
        return b""
    return found if len(found) == size else b""


def missing_of(mark: Mark, found: int) -> Missing | None:
    """Return the events that a start lacks; None if it lacks none."""
    if found >= mark.events:
        return None
    return Missing(mark.events, found, mark.at, datetime.now(UTC).isoformat(timespec="seconds"))


def sentence(database: str | Path) -> str | None:
    """Return a sentence about the missing events of a database; None if none is known to be missing."""
    mark = read(database)
    if mark is None or mark.missing is None:
        return None
    try:
        missing = Missing(**mark.missing)
    except TypeError:  # the file is not as it was written
        return None
    return (
        f"Events up to number {missing.acknowledged} ({missing.at}) were acknowledged, and at the start at "
        f"{missing.noticed} the database ended at number {missing.found}: "
        f"{missing.acknowledged - missing.found} may be missing. Restore a backup, or repeat them from their "
        f"clients. To end this warning, stop the server and remove {path_of(database).name}."
    )


class Keeper:
    """Keeps the mark of a database while a server writes to it."""

    def __init__(self, database: str, header: FileHeader) -> None:
        """`header` is that of the database now, with its log."""
        self._database = database
        before = read(database)
        is_same = before is not None and before.id == header.id
        self._mark = before if before is not None and is_same else Mark(id=header.id)
        self._salts = salts_of(database)
        known = self._mark.salts
        has_followed = self._salts is None or known is None or self._salts.is_same_or_later(Salts(*known))
        if not has_followed or header.counted < self._mark.base:  # an older copy, put here with its own log
            self._mark = replace(self._mark, salts=None, base=0)
        self._count = 0
        self.counted_at = 0.0

    def note_missing(self, found: int) -> None:
        """Store in the mark which events a start lacks, and log it."""
        if (missing := missing_of(self._mark, found)) is not None:
            self._mark = replace(self._mark, missing=asdict(missing), events=found)
            self._write()
            logger.error("%s", sentence(self._database))

    def note(self, salts_before: Salts | None, count: int, events: int) -> None:
        """Store what was read: the salts before it, and the count and newest event of a transaction."""
        salts = salts_of(self._database)
        if salts is not None and salts != self._salts and self._count:
            # All that was read under the log before is in the database now.
            self._mark = replace(self._mark, salts=(salts.first, salts.second), base=self._count)
        if salts == salts_before:
            self._salts, self._count = salts, count
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._mark = replace(self._mark, events=max(events, self._mark.events), at=now)
        self._write()

    def is_count_due(self, every_s: float) -> bool:
        """Return whether to increment the count now; if so, take it as done."""
        now = time.monotonic()
        if self.counted_at and now < self.counted_at + every_s:
            return False
        self.counted_at = now
        return True

    def _write(self) -> None:
        with suppress(OSError):  # such as a full disk: the old mark knows less, but nothing wrong
            write(self._database, self._mark)
