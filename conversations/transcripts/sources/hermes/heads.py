"""Which copy of a conversation is shown, and the rows that only another copy has.

A backup is a file's previous version, written when a later one had fewer rows. Fewer rows may be the result
of a fault or of the user's wish, so counts decide only if the file does not show that it was meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from conversations.transcripts.sources.hermes.copies import BACKUP, DATABASE, JOURNAL, Copy, Row

FROM = {BACKUP: "from the backup", JOURNAL: "from the run journal", DATABASE: "from the database"}
SALVAGED = "salvaged out of a damaged file"
DELETED = "the conversation was deleted"
REMOVED = "the user removed it"
UNUSABLE = "the backup cannot be read"
FOREIGN = "the backup is of another conversation"


class Shrink(StrEnum):
    """Why a file has fewer rows than before."""

    LOSS = "loss"
    CLEARED = "cleared"
    UNDONE = "undone"
    COMPACTED = "compacted"


@dataclass(frozen=True, slots=True)
class TakenRow:
    """A row that is taken, or left."""

    copy: Copy
    row: Row
    noted: tuple[str, ...] = ()
    skipped: str = ""


@dataclass(kw_only=True, slots=True)
class Head:
    copy: Copy
    rows: list[TakenRow]
    branches: list[Branch] = field(default_factory=list)
    left: list[TakenRow] = field(default_factory=list)  # rows of another copy that are not taken
    unread: str = ""  # why no row of another copy is taken
    newest: Copy | None = None  # the copy that was written last, if it is not the shown one

    is_deleted: bool = False

    @property
    def told(self) -> dict[str, object]:
        """Return the facts of the conversation, from the newest copy that has them."""
        return self.copy.told | (self.newest.told if self.newest else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """The continuation of the conversation in another copy."""

    copy: Copy
    shared: int
    rows: list[TakenRow]


def decided(file: Copy | None, backup: Copy | None, *, journal: Copy | None, is_deleted: bool) -> Head | None:
    """Return the rows of the conversation; None if there is no copy.

    `journal` is the copy in the journal of the last run: it replaces the missing backup of a damaged file.
    """
    usable = backup if backup is not None and backup.is_good and not backup.is_foreign else None
    if file is None:
        return _without_file(usable or backup, is_deleted=is_deleted)
    if file.is_good:
        head = _of_good(file, usable)
    else:
        other = usable or journal
        head = _longer(file, other) if other is not None else Head(copy=file, rows=_taken(file, 0))
    head.newest = file if head.copy is not file else None
    if backup is not None and usable is None:
        head.unread = FOREIGN if backup.is_foreign and backup.is_good else UNUSABLE
    return head


def joined(head: Head, older: Copy) -> None:
    """Add the rows that only this further copy has as a branch."""
    shared = common(head.copy.rows, older.rows)
    if lacking(older.rows[shared:], head.copy.rows[shared:]):
        head.branches.append(Branch(copy=older, shared=shared, rows=_taken(older, shared)))


def common(one: Sequence[Row], other: Sequence[Row]) -> int:
    """Return the number of rows with which both begin."""
    pairs = zip(one, other, strict=False)
    return next(
        (place for place, (a, b) in enumerate(pairs) if a.facts.digest != b.facts.digest),
        min(len(one), len(other)),
    )


def lacking(these: Sequence[Row], those: Sequence[Row]) -> list[Row]:
    """Return those of these rows that are missing among the others, each of which matches one."""
    there = Counter(row.facts.digest for row in those)
    found = []
    for row in these:
        if there[row.facts.digest]:
            there[row.facts.digest] -= 1
        else:
            found.append(row)
    return found


def shrunk(file: Copy, backup: Copy) -> Shrink:
    """Return why the file lacks rows of its backup: both prove anything but a loss."""
    if _is_cleared(file, backup):
        return Shrink.CLEARED
    mark, before = _mark(file.told), _mark(backup.told)
    # A damaged mark of the backup proves nothing.
    is_known = before is not None or backup.told.get("intentional_shrink_generation") is None
    if mark is not None and mark != before and is_known:
        return Shrink.UNDONE
    if _is_compacted(file, backup):
        return Shrink.COMPACTED
    return Shrink.LOSS


def _without_file(backup: Copy | None, *, is_deleted: bool) -> Head | None:
    if backup is None:
        return None
    if is_deleted:
        return Head(
            copy=backup,
            rows=[],
            left=[TakenRow(backup, row, skipped=DELETED) for row in backup.rows],
            is_deleted=True,
        )
    return Head(copy=backup, rows=_taken(backup, 0))


def _of_good(file: Copy, backup: Copy | None) -> Head:
    head = Head(copy=file, rows=_taken(file, 0))
    if backup is None:
        return head
    shared = common(file.rows, backup.rows)
    lacks = lacking(backup.rows[shared:], file.rows[shared:])
    if not lacks:
        return head
    shrink = shrunk(file, backup)
    if shrink in (Shrink.CLEARED, Shrink.UNDONE):
        head.left = [TakenRow(backup, row, skipped=REMOVED) for row in lacks]
    elif shrink is Shrink.COMPACTED or len(file.rows) >= len(backup.rows):
        head.branches.append(Branch(copy=backup, shared=shared, rows=_taken(backup, shared)))
    else:
        return _longer(file, backup)
    return head


def _longer(file: Copy, other: Copy) -> Head:
    head, less = (file, other) if len(file.rows) >= len(other.rows) else (other, file)
    shared = common(file.rows, other.rows)
    rows = [*_taken(file, 0)[:shared], *_taken(head, shared)]
    chosen = Head(copy=head, rows=rows)
    joined(chosen, less)
    return chosen


def _taken(copy: Copy, start: int) -> list[TakenRow]:
    noted = (FROM[copy.origin],) if copy.origin in FROM else ()
    if copy.origin != DATABASE and not copy.is_good:
        noted = (*noted, SALVAGED)
    return [TakenRow(copy, row, noted) for row in copy.rows[start:]]


def _is_cleared(file: Copy, backup: Copy) -> bool:
    mark = file.told.get("clear_generation")
    if not isinstance(mark, str) or not mark or mark == backup.told.get("clear_generation"):
        return False
    limits = (file.told.get(name) for name in ("truncation_watermark", "truncation_boundary"))
    if not all(isinstance(limit, int | float) and limit is not False and limit == 0 for limit in limits):
        return False
    is_waiting = any(value for name, value in file.told.items() if name.startswith("pending_"))
    return bool(file.rows) or not (file.context is None or file.context or is_waiting)


def _mark(told: Mapping[str, object]) -> str | None:
    """Return the mark of a removal that the user wanted."""
    mark = told.get("intentional_shrink_generation")
    if not isinstance(mark, str):
        return None
    try:
        read = UUID(hex=mark)
    except ValueError:
        return None
    return mark if read.hex == mark and read.version == 4 else None


def _is_compacted(file: Copy, backup: Copy) -> bool:
    """Return whether a summary that the user requested replaced rows."""
    if file.context is None or backup.context is None:
        return False
    is_short = len(file.context) < len(file.rows)
    has_anchor = bool(
        file.told.get("compression_anchor_summary") and file.told.get("compression_anchor_message_key")
    )
    is_marked = has_anchor or file.told.get("truncation_watermark") is not None
    is_manual = file.told.get("compression_anchor_mode") == "manual" or (is_short and is_marked)
    return is_manual and not backup.has_summary and len(backup.context) > len(file.context)
