"""The tool that shows and edits files: both wires have events of their own for its calls.

Contents of files in events are bounded: of a long file, an event has the part around the change.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

FILE_TOOL = "file_editor"
VIEW = "view"
EDITS = ("create", "str_replace", "insert", "undo_edit")
COMMANDS = (VIEW, *EDITS)

_NO_LINE_END = "\n\\ No newline at end of file"


class FileEdit(NamedTuple):
    """What a call did to a file; a content of None is unknown, or of a file that was not there."""

    path: str
    prev_exist: bool = True
    old_content: str | None = None
    new_content: str | None = None
    diff: str = ""
    """A unified one."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_line(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_OF_ALL: Mapping[str, Callable[[object], bool]] = {
    "command": lambda value: value in COMMANDS,
    "path": _is_text,
}
_OF_A_VIEW: Mapping[str, Callable[[object], bool]] = {
    "view_range": lambda value: isinstance(value, list) and all(map(_is_line, value))
}
_OF_AN_EDIT: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("file_text", "old_str", "new_str"), _is_text),
    # Clients of V1 refuse a number below 0.
    "insert_line": lambda value: isinstance(value, int) and _is_line(value) and value >= 0,
}


def arguments_in(name: str, arguments: Mapping[str, object]) -> dict[str, object] | None:
    """Return the arguments of a call of FILE_TOOL as the events of the wires have them, without nulls.

    Return None for any other call, and for one with arguments that these events cannot carry.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    if name != FILE_TOOL or not given.keys() >= _OF_ALL.keys():
        return None
    known = {**_OF_ALL, **(_OF_A_VIEW if given["command"] == VIEW else _OF_AN_EDIT)}
    fits = all(key in known and known[key](value) for key, value in given.items())
    return given if fits else None


def edit_by(given: Mapping[str, object], edit: FileEdit | None) -> tuple[str, FileEdit]:
    """Return the command of a call with these arguments, and what it did, as far as that is known."""
    return str(given["command"]), edit or FileEdit(str(given["path"]))


def edit_of(path: str, old: str | None, new: str, *, most: int = 20_000) -> FileEdit:
    """Return a change of a whole file for an event. It takes time in proportion to the file.

    Of long contents, the event has the lines around what has changed.
    """
    edit = FileEdit(path, old is not None, old, new, unified(path, old or "", new))
    if max(len(old or ""), len(new)) <= most:
        return edit
    if old is None:
        return edit._replace(new_content=_cut(new, most))
    part = _ChangedPart.of(old, new, around=20)
    before = f"{_left_out(part.lines_before)}\n" if part.lines_before else ""
    after = _left_out(part.lines_after) if part.lines_after else ""
    shown_old, shown_new = (_cut(f"{before}{each}{after}", most) for each in (part.old, part.new))
    return edit._replace(old_content=shown_old, new_content=shown_new)


def unified(path: str, old: str, new: str, *, most: int = 30_000) -> str:
    """Return a unified diff of at most about `most` characters; empty if nothing has changed."""
    if old == new:
        return ""
    context = 3
    part = _ChangedPart.of(old, new, around=context)
    a, b = _lines(part.old), _lines(part.new)
    lines = [f"--- {path}", f"+++ {path}"]
    for group in _groups(a, b, context):
        lines.append(_header(group, part.lines_before))
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                lines += [f" {line}" for line in a[a1:a2]]
            else:
                lines += [f"-{line}" for line in a[a1:a2]]
                lines += [f"+{line}" for line in b[b1:b2]]
    text = "\n".join(lines)
    # Readers of diffs pass over a line that begins so.
    return text if len(text) <= most else f"{text[:most]}\n\\ The rest of this change is left out."


class _ChangedPart(NamedTuple):
    """The lines of two texts that differ, with some of the equal ones around them."""

    old: str
    new: str
    lines_before: int
    lines_after: int

    @classmethod
    def of(cls, old: str, new: str, *, around: int) -> _ChangedPart:
        # Texts of megabytes: what is equal at both ends is compared by the piece, not by the line.
        equal = _equal_beginning(old, new)
        at_end = _equal_end(old, new, min(len(old), len(new)) - equal)
        begin = old.rfind("\n", 0, equal) + 1
        for _ in range(around):
            begin = old.rfind("\n", 0, max(0, begin - 1)) + 1
        # The rest begins with a line in both.
        ends = [text[max(0, len(text) - at_end - 1) : len(text) - at_end] for text in (old, new)]
        end = len(old) - at_end
        if ends != ["\n", "\n"]:
            end = old.find("\n", end) + 1 or len(old)
        for _ in range(around):
            end = old.find("\n", end) + 1 or len(old)
        rest = len(old) - end
        after = old.count("\n", end) + (rest > 0 and not old.endswith("\n"))
        return cls(old[begin:end], new[begin : len(new) - rest], old.count("\n", 0, begin), after)


def _equal_beginning(old: str, new: str) -> int:
    """Return how many characters are equal at the beginnings."""
    known, most = 0, min(len(old), len(new))
    while known < most:
        half = (known + most + 1) // 2
        if old[known:half] == new[known:half]:
            known = half
        else:
            most = half - 1
    return known


def _equal_end(old: str, new: str, most: int) -> int:
    """Return how many characters are equal at the ends, up to a maximum."""
    known = 0
    while known < most:
        half = (known + most + 1) // 2
        if old[len(old) - half : len(old) - known] == new[len(new) - half : len(new) - known]:
            known = half
        else:
            most = half - 1
    return known


_Opcode = tuple[str, int, int, int, int]


def _groups(a: Sequence[str], b: Sequence[str], context: int) -> Iterator[Sequence[_Opcode]]:
    """Yield the changes of each hunk."""
    compared_most = 400
    if max(len(a), len(b)) <= compared_most:
        yield from difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(context)
        return
    # To compare more lines can cost the product of their numbers.
    shorter = min(len(a), len(b))
    head = next((at for at in range(shorter) if a[at] != b[at]), shorter)
    tail = next((at for at in range(shorter - head) if a[-1 - at] != b[-1 - at]), shorter - head)
    ends = len(a) - tail, len(b) - tail
    yield [
        ("equal", 0, head, 0, head),
        ("replace", head, ends[0], head, ends[1]),
        ("equal", ends[0], len(a), ends[1], len(b)),
    ]


def _header(group: Sequence[_Opcode], start: int) -> str:
    """Return the line before a hunk; `start` lines are before what was compared."""
    (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
    # A hunk without lines of a file names the line before it.
    ranges = (f"{start + first + (first < last)},{last - first}" for first, last in ((a1, a2), (b1, b2)))
    return "@@ -{} +{} @@".format(*ranges)


def _lines(text: str) -> list[str]:
    if not text:
        return []
    if text.endswith("\n"):
        return text[:-1].split("\n")
    return f"{text}{_NO_LINE_END}".split("\n", text.count("\n"))


def _left_out(count: int) -> str:
    return f"[… {count:,} lines are left out here …]"


def _cut(text: str, most: int) -> str:
    left_out = f"\n[… {len(text) - most:,} characters are left out here …]"
    return text if len(text) <= most else text[:most] + left_out
