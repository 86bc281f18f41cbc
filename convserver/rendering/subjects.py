"""What a call that waits for approval would do: all of it, as text in which nothing hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conversations.dialects import columns
from convserver.rendering import diffs
from convserver.rendering.arguments import CODE, is_edit, written
from convserver.rendering.cards import CallCard
from convserver.rendering.diffs import Diff
from convserver.rendering.text import visible

SHOWN_MAX_CHARS = 200_000
"""A subject with more characters is cut, and cannot be approved on the page."""
SECTIONS_MAX = 50
"""Of a call with more arguments all stand in one section."""
NAME_MAX_CHARS = 200
"""An argument with a longer name, too."""
LINE_MAX_CHARS = 120
"""An argument that is longer, or has several lines, stands below its name instead of beside it."""
_FILE_TEXTS = ("file_text", "content")


class Section(NamedTuple):
    """One argument by its name."""

    name: str
    text: str
    language: str = ""

    @property
    def is_line(self) -> bool:
        """Say whether it is short enough to stand beside its name."""
        return "\n" not in self.text and len(self.text) <= LINE_MAX_CHARS and not self.language


class Subject(NamedTuple):
    """All that a call would do; `is_whole` is false when not all of it is here."""

    sections: tuple[Section, ...]
    diff: Diff | None
    characters: int
    """How many the whole has."""
    shown: int
    """How many of them are here."""
    lines: int
    is_whole: bool


def subject_of(card: CallCard) -> Subject:
    """Return all of a call, up to SHOWN_MAX_CHARS characters of it."""
    if card.given is None:
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
        is_whole=shown == tuple(whole) and all(section.text for section in whole),
    )


def _change(card: CallCard) -> tuple[Diff | None, frozenset[str]]:
    """Return an edit as a diff, and the arguments that it shows whole; nothing where it would hide any."""
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
    if len(given) > SECTIONS_MAX or any(len(name) > NAME_MAX_CHARS for name in given):
        yield Section("arguments", visible.exact(written(dict(given))), "json")
        return
    for name, value in given.items():
        is_object = isinstance(value, dict | list) and bool(value)
        yield Section(visible.exact(name), visible.exact(_text(value)), "json" if is_object else "")


def _text(value: object) -> str:
    """Return an argument as text: a string as itself, but an empty one, which nobody would see.

    What is nested too deeply to be written is empty.
    """
    if value is None or value == "":
        return "null" if value is None else '""'
    return written(value)


def _cut(sections: list[Section], room: int) -> Iterator[Section]:
    """Yield as many sections as there is room for, counted in characters, the last one cut."""
    for section in sections:
        if room <= 0:
            return
        yield section._replace(text=section.text[:room])
        room -= len(section.text) + len(section.name)
