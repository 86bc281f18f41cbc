"""Changes of a file as numbered lines: removed, added and unchanged ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LINES_MAX = 1_000
LINE_MAX_CHARS = 1_000
SHOWN_MAX_CHARS = 50_000
READ_MAX_CHARS = 400_000  # even to split a text into lines takes time in proportion to its length
CONTEXT = 3

# At most nine digits: Python refuses to read an integer of thousands of them.
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@")
_HEADERS = ("--- ", "+++ ", "diff ", "index ")


class DiffLine(NamedTuple):
    """One line of a diff; `kind` is `added`, `removed`, `same` or `gap`."""

    kind: str
    old: int | None  # its number in the old file; None if it is not there, or not known
    new: int | None
    text: str

    @property
    def sign(self) -> str:
        return {"added": "+", "removed": "\u2212"}.get(self.kind, " ")


class Diff(NamedTuple):
    """A change of one file."""

    lines: tuple[DiffLine, ...]
    added: int
    removed: int
    is_cut: bool

    @property
    def is_numbered(self) -> bool:
        return any(line.old or line.new for line in self.lines)


def of_unified(text: str) -> Diff | None:
    """Return a unified diff as read; None for any other text."""
    if not _HUNK.search(text[:READ_MAX_CHARS]):
        return None
    return _diff(_unified_lines(text[:READ_MAX_CHARS].split("\n")))


def of_contents(old: str, new: str) -> Diff | None:
    """Return the difference of a file before and after; None when nothing changed."""
    return None if old == new else _diff(_compared(_lines(old), _lines(new), is_file=True))


def of_replacement(old: str, new: str) -> Diff | None:
    """Return the difference of a passage whose place in the file is not known."""
    return None if old == new else _diff(_compared(_lines(old), _lines(new), is_file=False))


def _lines(text: str) -> list[str]:
    text = text[:READ_MAX_CHARS]
    return text.removesuffix("\n").split("\n") if text else []


def _diff(lines: Iterator[DiffLine]) -> Diff | None:
    shown: list[DiffLine] = []
    added = removed = 0
    room, is_cut = SHOWN_MAX_CHARS, False
    for line in lines:
        added += line.kind == "added"
        removed += line.kind == "removed"
        if len(shown) < LINES_MAX and room > 0:
            shown.append(line._replace(text=line.text[:LINE_MAX_CHARS]))
            room -= len(shown[-1].text)
            is_cut = is_cut or len(line.text) > LINE_MAX_CHARS
        else:
            is_cut = True  # the lines beyond are still counted, so that the totals are right
    return Diff(tuple(shown), added, removed, is_cut) if shown else None


def _unified_lines(lines: Sequence[str]) -> Iterator[DiffLine]:
    old = new = 0
    for text in lines:
        if hunk := _HUNK.match(text):
            if old or new:
                yield DiffLine("gap", None, None, "…")
            old, new = int(hunk[1]), int(hunk[2])
        elif not (old or new) or text.startswith("\\"):
            continue  # text before the first hunk, or "\ No newline at end of file"
        elif text.startswith("+"):
            yield DiffLine("added", None, new, text[1:])
            new += 1
        elif text.startswith("-"):
            yield DiffLine("removed", old, None, text[1:])
            old += 1
        # The empty last one is what follows the last line end.
        elif not text.startswith(_HEADERS) and (text or text is not lines[-1]):
            yield DiffLine("same", old, new, text[1:])
            old, new = old + 1, new + 1


def _compared(old: list[str], new: list[str], *, is_file: bool) -> Iterator[DiffLine]:
    """Yield the differing lines between the equal ones at both ends, with some of these."""
    # What is equal at both ends costs nothing to compare, and is most of a file.
    head = _same_beginning(old, new)
    tail = _same_beginning(old[head:][::-1], new[head:][::-1])
    start = max(0, head - CONTEXT)
    end_old, end_new = len(old) - tail, len(new) - tail
    for at in range(start, head):
        yield DiffLine("same", at + 1 if is_file else None, at + 1 if is_file else None, old[at])
    for kind, a, b in _changes(old[head:end_old], new[head:end_new]):
        number_a = head + a + 1 if is_file else None
        number_b = head + b + 1 if is_file else None
        match kind:
            case "removed":
                yield DiffLine(kind, number_a, None, old[head + a])
            case "added":
                yield DiffLine(kind, None, number_b, new[head + b])
            case "gap":
                yield DiffLine(kind, None, None, "…")
            case _:
                yield DiffLine(kind, number_a, number_b, old[head + a])
    for at in range(min(CONTEXT, tail)):
        a, b = end_old + at, end_new + at
        yield DiffLine("same", a + 1 if is_file else None, b + 1 if is_file else None, old[a])


def _same_beginning(old: Sequence[str], new: Sequence[str]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )


def _changes(old: list[str], new: list[str]) -> Iterator[tuple[str, int, int]]:
    """Yield kind and places of each line of two texts that differ at both ends."""
    # Longer parts are not compared line by line, which can cost the product of their lengths.
    compared_max_lines = 400
    if max(len(old), len(new)) > compared_max_lines:
        yield from (("removed", at, 0) for at in range(len(old)))
        yield from (("added", 0, at) for at in range(len(new)))
        return
    for tag, a1, a2, b1, b2 in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            yield from _same(a1, a2, b1)
        else:
            yield from (("removed", at, b1) for at in range(a1, a2))
            yield from (("added", a1, at) for at in range(b1, b2))


def _same(first: int, last: int, beside: int) -> Iterator[tuple[str, int, int]]:
    """Yield the equal lines between two changes, with a gap in place of the middle ones."""
    if last - first <= 2 * CONTEXT + 1:  # a gap takes a line, too: it must hide at least two
        yield from (("same", at, beside + at - first) for at in range(first, last))
        return
    yield from (("same", at, beside + at - first) for at in range(first, first + CONTEXT))
    yield ("gap", first, beside)
    yield from (("same", at, beside + at - first) for at in range(last - CONTEXT, last))
