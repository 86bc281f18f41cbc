"""Sessions that begin with a copy of another one's lines: which belong together, and where each continues.

The program copies the lines of a session when it is resumed or forked, with their uuids, into a new file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from conversations.dialects import columns
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.claude_code.tree import Place
from conversations.transcripts.sources.lines import IsRecord
from conversations.transcripts.sources.nodes import Unreadable

_TAIL_BYTES = 64 * 1024
_TIME = re.compile(rb'"timestamp"\s*:\s*"([^"\\]{10,40})"')


def grouped(
    files: Iterable[Path], is_record: IsRecord, kind: Callable[[Path], object]
) -> Iterator[list[Path]]:
    """Yield the files in their order, copies of one session together, the one that ended first first.

    Only files of the same kind can be copies.
    """
    groups: dict[Path, list[Path]] = {}
    first: dict[tuple[object, str], Path] = {}
    leading: dict[Path, Path] = {}
    for file in files:
        leading[file], groups[file] = file, [file]
        for uuid in _uuids(file, is_record):
            other = leading[first.setdefault((kind(file), uuid), file)]
            if other != leading[file]:
                for each in groups.pop(leading[file]):
                    leading[each] = other
                    groups[other].append(each)
    for group in groups.values():
        yield sorted(group, key=lambda file: (_ended(file), file)) if len(group) > 1 else group


def _uuids(file: Path, is_record: IsRecord) -> list[str]:
    # A copy has one of the first lines of the other
    probed = 100
    try:
        found = islice(lines.records(file, is_record), probed)
        ids = (columns.event_id(each.value.get("uuid")) for each in found if each.value is not None)
        return [uuid for uuid in ids if uuid is not None]
    except Unreadable:  # reported when the file is read
        return []


def _ended(file: Path) -> str:
    """Return the last time in a file, as it is written; the program writes all times in UTC."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            times = _TIME.findall(opened.read(_TAIL_BYTES))
    except OSError:
        return ""
    return max(times, default=b"").decode(errors="replace")


class Copied(NamedTuple):
    """The place where a conversation continues that begins like another session's."""

    source_id: str  # the conversation that it leaves
    after: str  # the uuid of the last line that both have
    shared: list[Place]
    own: list[Place]


class Earlier:
    """The conversations of the sessions before, in a group of copies."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}  # by uuid: the conversation that has the line first
        self._chains: dict[str, list[str]] = {}

    def add(self, source_id: str, shared: Sequence[Place], own: Sequence[Place]) -> None:
        self._chains[source_id] = [each.node_id for each in (*shared, *own) if each.is_in_tree]
        for place in own:
            if place.is_in_tree:
                self._of.setdefault(place.node_id, source_id)

    def copied(self, shared: Sequence[Place], own: Sequence[Place]) -> Copied | None:
        """Return the division of a conversation's lines; None if no earlier one has any of them."""
        last = next((each for each in reversed(own) if each.is_in_tree and each.node_id in self._of), None)
        if last is None:
            return None
        source_id = self._of[last.node_id]
        chain = self._chains[source_id]
        both = set(chain[: chain.index(last.node_id) + 1])
        all_lines = [*shared, *own]
        return Copied(
            source_id,
            last.node_id,
            [each for each in all_lines if each.is_in_tree and each.node_id in both],
            [each for each in own if not (each.is_in_tree and each.node_id in both)],
        )
