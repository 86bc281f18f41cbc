"""One copy of a conversation's rows: that of its file, of a backup, of a journal, or of the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from conversations.dialects import columns
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.hermes import rows, scanning
from conversations.transcripts.sources.hermes.rows import Facts
from conversations.transcripts.sources.hermes.scanning import Found
from conversations.transcripts.sources.nodes import Changed, Kept, Part, Record, Unreadable

FILE, BACKUP, JOURNAL, DATABASE = "", "backup", "run journal", "database"
"""Where rows come from; what a row of the file is called needs no word for it."""
LEFT_OUT = "anchor_activity_scenes"
"""What the program's screen shows, made from the rows once more."""
SESSION_ID_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class Row(NamedTuple):
    """A row of a list."""

    number: int
    """From 1."""
    load: Callable[[], object]
    """Read the row. Raise Unreadable."""
    facts: Facts
    is_inactive: bool = False
    """Whether the program took it out of what it shows."""


class Lost(NamedTuple):
    """Bytes that are damaged."""

    start: int
    end: int
    why: str
    before: int
    """How many rows come before them."""
    load: Callable[[], bytes]
    """Read them. Raise Unreadable."""

    @property
    def place(self) -> str:
        """Return where they are, for people."""
        return f"bytes {self.start} to {self.end}"

    def parts(self) -> tuple[Part, ...]:
        """Return the bytes as they are."""
        return (Record(name="bytes", value=lines.kept(self.load()), why=Kept.DAMAGED),)


@dataclass(kw_only=True, slots=True)
class Copy:
    """A copy of a conversation."""

    origin: str
    told: dict[str, object] = field(default_factory=dict)
    """The members of the document but its lists."""
    rows: list[Row] = field(default_factory=list)
    context: list[Row] | None = None
    """What the model was sent; None if the copy has no such list."""
    cards: list[Row] = field(default_factory=list)
    """Calls of tools as the screen shows them."""
    lost: list[Lost] = field(default_factory=list)
    is_good: bool = True
    """Whether it is all that was written, and of this conversation."""
    is_foreign: bool = False
    """Whether the id inside is another one."""

    @property
    def has_summary(self) -> bool:
        """Say whether the model was sent a summary."""
        return any(row.facts.is_card for row in self.context or ())


def read(path: Path, session_id: str, origin: str) -> Copy:
    """Return the copy that is in a file. Raise Unreadable."""
    copy = Copy(origin=origin)
    stamp = _stamp(path)
    lists: dict[str, list[Row]] = {}
    for found in scanning.found(path):
        if found.damage:
            load = partial(_bytes, path, stamp, found)
            count = len(lists.get("messages", ()))
            copy.lost.append(Lost(found.start, found.end, found.damage, count, load))
        elif found.is_list:
            lists.setdefault(found.name, [])
        elif found.is_element:
            of_list = lists.setdefault(found.name, [])
            loaded = partial(_value, path, stamp, found)
            of_list.append(Row(len(of_list) + 1, loaded, rows.facts(found.value)))
        elif found.name != LEFT_OUT:
            copy.told[found.name] = found.value
    copy.rows, copy.cards = lists.get("messages", []), lists.get("tool_calls", [])
    copy.context = lists.get("context_messages")
    copy.is_foreign = copy.told.get("session_id") != session_id
    copy.is_good = "messages" in lists and not copy.lost
    return copy


def in_memory(values: Sequence[object], origin: str) -> Copy:
    """Return a copy of these rows."""
    return Copy(origin=origin, rows=[row_of(value, number) for number, value in enumerate(values, 1)])


def row_of(value: object, number: int) -> Row:
    """Return a row that is not in a file of its own."""
    return Row(number, lambda: value, rows.facts(value))


def head_of(path: Path) -> Mapping[str, object]:
    """Return the members that come before the rows. Raise Unreadable."""
    told: dict[str, object] = {}
    for found in scanning.found(path):
        if found.is_list:
            break
        if not found.damage:
            told[found.name] = found.value
    return told


def session_id(value: object) -> str | None:
    """Return an id that the program could have given; None for anything else."""
    text = columns.event_id(value)
    return text if text and not text.startswith("_") and SESSION_ID_CHARS.issuperset(text) else None


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file does. Raise Unreadable."""
    try:
        found = path.stat()
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def _value(path: Path, stamp: tuple[int, int, int], found: Found) -> object:
    try:
        return scanning.value(_bytes(path, stamp, found))
    except lines.Damaged as error:
        raise Unreadable(f"{path.name} changed while it was read") from error


def _bytes(path: Path, stamp: tuple[int, int, int], found: Found) -> bytes:
    if _stamp(path) != stamp:
        raise Changed(f"{path.name} changed while it was read")
    return scanning.bytes_at(path, found.start, found.end)
