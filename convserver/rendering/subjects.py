"""All that a call which waits for approval would do, as text with every character visible."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conversations.dialects import columns
from convserver.rendering import diffs
from convserver.rendering.arguments import CODE, is_edit, written
from convserver.rendering.cards import CallCard
from convserver.rendering.diffs import Diff
from convserver.rendering.text import visible
from convserver.rendering.tools import as_call, is_simple

# A longer subject is cut and cannot be approved on the page.
SHOWN_MAX_CHARS = 200_000
NAME_MAX_CHARS = 200
_FILE_TEXTS = ("file_text", "content")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Section(NamedTuple):
    name: str
    text: str
    language: str = ""

    @property
    def is_line(self) -> bool:
        """Return whether the text fits beside its name, and not below."""
        return "\n" not in self.text and len(self.text) <= 120 and not self.language


class Subject(NamedTuple):
    """All that a call would do; `is_whole` is false if it was cut."""

    sections: tuple[Section, ...]
    diff: Diff | None
    characters: int  # the length before the cut
    shown: int  # the length after the cut
    lines: int
    is_whole: bool


def subject_of(card: CallCard) -> Subject:
    """Return all of a call, at most SHOWN_MAX_CHARS characters."""
    if card.given is None:  # what cannot be shown must not be approved
        return Subject((), None, 0, 0, 0, is_whole=False)
    diff, replaced = _change(card)
    rest = {name: value for name, value in card.given.items() if name not in replaced}
    whole = list(_sections(card, rest))
    changed = [line.text for line in diff.lines] if diff else []
    texts = [*(section.text for section in whole), *changed]
    characters = sum(map(len, texts)) + len(changed)
    shown = tuple(_cut(whole, SHOWN_MAX_CHARS))
    return Subject(
        sections=shown,
        diff=diff,
        characters=characters,
        shown=characters - sum(len(each.text) for each in whole) + sum(len(each.text) for each in shown),
        lines=sum(text.count("\n") + 1 for text in texts),
        # An empty section is one that could not be written: there would be something to see.
        is_whole=shown == tuple(whole) and all(section.text for section in whole),
    )


def _change(card: CallCard) -> tuple[Diff | None, frozenset[str]]:
    """Return an edit as a diff and the arguments in it; None where the diff would hide a part."""
    given = card.given or {}
    if not is_edit(card.tool):
        return None, frozenset()
    old, new = given.get("old_str"), given.get("new_str")
    names: tuple[str, ...]
    if isinstance(old, str) and isinstance(new, str) and old:
        names, before, after = ("old_str", "new_str"), old, new
    else:
        texts = [name for name in _FILE_TEXTS if isinstance(given.get(name), str) and given[name]]
        if len(texts) != 1 or old or new:
            return None, frozenset()
        names, before, after = (texts[0],), "", columns.first_text(given[texts[0]])
    # Lines of a diff do not show whether the last one ends, nor what is cut.
    ends_alike = not before or not after or before.endswith("\n") == after.endswith("\n")
    diff = diffs.of_replacement(before, after) if ends_alike else None
    if diff is None or diff.is_cut or len(before) + len(after) > diffs.SHOWN_MAX_CHARS:
        return None, frozenset()
    return diff, frozenset(names)


def _sections(card: CallCard, given: Mapping[str, object]) -> Iterator[Section]:
    """Yield the arguments, a command or code first."""
    code, language = CODE.get(card.tool.icon, ("", ""))
    if isinstance(given.get(code), str):
        yield Section(visible.exact(code), visible.exact(_text(given[code])), language)
        given = {name: value for name, value in given.items() if name != code}
    line_max = 120
    line = as_call(given, name=card.tool.name, each_max=line_max)
    is_short = given and not card.tool.is_known and len(line) <= line_max
    # Any other name could look like the values of several arguments.
    is_plain = all(map(_NAME.fullmatch, (card.tool.name, *given)))
    if is_short and is_plain and all(map(_is_as_written, given.values())):
        yield Section("", visible.exact(line))
        return
    # A call with more arguments, or with a longer name of one, has one section for all.
    sections_max = 50
    if len(given) > sections_max or any(len(name) > NAME_MAX_CHARS for name in given):
        yield Section("arguments", visible.exact(written(dict(given))), "json")
        return
    for name, value in given.items():
        is_object = isinstance(value, dict | list) and bool(value)
        yield Section(visible.exact(name), visible.exact(_text(value)), "json" if is_object else "")


def _is_as_written(value: object) -> bool:
    """Return whether a call shows the argument exactly, without an escape that takes some thought."""
    return is_simple(value) and (
        not isinstance(value, str) or json.dumps(value, ensure_ascii=False) == f'"{value}"'
    )


def _text(value: object) -> str:
    """Return an argument as text; a value that is nested too deeply to be written is empty."""
    # An empty string would be invisible.
    if value is None or value == "":
        return "null" if value is None else '""'
    return written(value)


def _cut(sections: list[Section], room: int) -> Iterator[Section]:
    """Yield the sections that fit into `room` characters, the last one cut."""
    for section in sections:
        if room <= 0:
            return
        yield section._replace(text=section.text[:room])
        room -= len(section.text) + len(section.name)
