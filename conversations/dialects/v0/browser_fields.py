"""Removing a browser's copies of whole pages, which are too large for a trajectory (spec V0 §1.5)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_NAMES = (
    "dom_object",
    "axtree_object",
    "active_page_index",
    "last_browser_action",
    "last_browser_action_error",
    "focused_element_bid",
    "extra_element_properties",
    "screenshot",
    "set_of_marks",
)
# In JSON a quote inside a string has a backslash before it, and after a string's end no letter can follow:
# so this finds only members' names.
_MEMBER = re.compile(rf'(?<!\\)"(?:{"|".join(_NAMES)})"[ \t\n\r]*+:[ \t\n\r]*+')
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT = rf'(?:[^"{{}}\[\]]++|{_STRING})*+'
_SCALAR = re.compile(rf'{_STRING}|[^"{{}}\[\], \t\n\r]++')
# Passes over pairs of brackets that hold no others in one go: most pairs do not.
_BRACKET = re.compile(
    rf'(?:[^"{{}}\[\]]++|{_STRING}|\{{{_FLAT}\}}|\[{_FLAT}\])*+([{{}}\[\]])',
)
_NAME = re.compile(rf"[{{, \t\n\r]*+({_STRING})[ \t\n\r]*+:[ \t\n\r]*+")
_COMMA = re.compile(r"[ \t\n\r]*+,")
_SPACE = " \t\n\r"


def without_browser_fields(shown: str) -> str:
    """Return an event without the browser fields of its `extras`, at any depth; all else unchanged.

    Nothing is decoded: a decoder would block all other threads while it reads the page.
    """
    if not any(f'"{name}"' in shown for name in _NAMES):
        return shown
    kept: list[str] = []
    copied = 0
    for start, end in _extras_of(shown):
        kept += (shown[copied:start], _without(shown[start:end]))
        copied = end
    return "".join(kept) + shown[copied:]


def _extras_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the event's extras: once, unless a sender has named them twice."""
    end = 0
    while name := _NAME.match(text, end):
        end = _end_of_value(text, name.end())
        if json.loads(name[1]) == "extras":
            yield name.end(), end


def _without(text: str) -> str:
    """Return JSON text without the members of these names; decode nothing."""
    kept: list[str] = []
    start = 0
    while found := _MEMBER.search(text, start):
        before = text[start : found.start()].rstrip(_SPACE)
        start = _end_of_value(text, found.end())
        # One comma goes with the member: that before it, or for the first of its object that after it.
        if not before.endswith(",") and (comma := _COMMA.match(text, start)):
            start = comma.end()
        kept.append(before.removesuffix(","))
    return "".join(kept) + text[start:]


def _end_of_value(text: str, start: int) -> int:
    if scalar := _SCALAR.match(text, start):
        return scalar.end()
    depth, end = 1, start + 1
    while bracket := _BRACKET.match(text, end):
        depth += 1 if bracket[1] in "{[" else -1
        end = bracket.end()
        if not depth:
            break
    return end
