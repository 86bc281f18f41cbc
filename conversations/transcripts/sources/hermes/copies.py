"""One copy of a conversation's rows: from its file, a backup, a journal, or the database."""

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

# The sources of rows, for people; rows of the file need no word for it.
FILE, BACKUP, JOURNAL, DATABASE = "", "backup", "run journal", "database"
LEFT_OUT = "anchor_activity_scenes"  # the content of the program's screen, made from the rows
SESSION_ID_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class Row(NamedTuple):
    number: int  # from 1
    # Read the row. Raise Unreadable.
    load: Callable[[], object]
    facts: Facts
    is_inactive: bool = False  # whether the program no longer shows it


class Lost(NamedTuple):
    """Damaged bytes."""

    start: int
    end: int
    why: str
    before: int  # the number of rows before them
    # Read them. Raise Unreadable.
    load: Callable[[], bytes]

    @property
    def place(self) -> str:
        return f"bytes {self.start} to {self.end}"

    def parts(self) -> tuple[Part, ...]:
        return (Record(name="bytes", value=lines.kept(self.load()), why=Kept.DAMAGED),)


@dataclass(kw_only=True, slots=True)
class Copy:
    origin: str
    told: dict[str, object] = field(default_factory=dict)  # the members of the document but its lists
    rows: list[Row] = field(default_factory=list)
    context: list[Row] | None = None  # the model's input; None if the copy has no such list
    cards: list[Row] = field(default_factory=list)  # calls of tools in the form of the screen
    lost: list[Lost] = field(default_factory=list)
    is_good: bool = True  # whether it is complete, and of this conversation
    is_foreign: bool = False  # whether the id inside is another one

    @property
    def has_summary(self) -> bool:
        return any(row.facts.is_card for row in self.context or ())


def read(path: Path, session_id: str, origin: str) -> Copy:
    """Return the copy in a file. Raise Unreadable."""
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
    return Copy(origin=origin, rows=[row_of(value, number) for number, value in enumerate(values, 1)])


def row_of(value: object, number: int) -> Row:
    """Return a row that has no file of its own."""
    return Row(number, lambda: value, rows.facts(value))


def head_of(path: Path) -> Mapping[str, object]:
    """Return the members before the rows. Raise Unreadable."""
    told: dict[str, object] = {}
    for found in scanning.found(path):
        if found.is_list:
            break
        if not found.damage:
            told[found.name] = found.value
    return told


def session_id(value: object) -> str | None:
    """Return an id that the program could have made; None for anything else."""
    text = columns.event_id(value)
    return text if text and not text.startswith("_") and SESSION_ID_CHARS.issuperset(text) else None


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return facts that change when a file is written to. Raise Unreadable."""
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
