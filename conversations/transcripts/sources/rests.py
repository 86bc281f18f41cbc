"""The members of a record that no event carries, kept as a record beside the events.

A reader names the members that its events carry, and keeps the rest of the record unchanged, known or not. An
event cannot carry it: clients of its dialect refuse unknown members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from conversations.dialects import columns
from conversations.transcripts.sources.nodes import Kept, Record

PATHS_MAX = 1_000  # the values of this many members are compared with those of the record before
SHORT_CHARACTERS = 100

_EMPTY: tuple[object, ...] = (None, {}, [], "")


def left(
    fields: Mapping[str, object], carried: Collection[str], inner: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the members that no event carries, and the rest of the `inner` ones.

    Null and empty members are left out.
    """
    inner = inner or {}
    rest = {
        name: value
        for name, value in fields.items()
        if name not in carried and name not in inner and value not in _EMPTY
    }
    return rest | {name: value for name, value in inner.items() if value not in _EMPTY}


def left_of_block(
    block: Mapping[str, object], carried: Collection[str], inner: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the rest of a block of content, with its type; nothing if all of it is carried."""
    rest = left(block, (*carried, "type"), inner)
    return {"type": block.get("type"), **rest} if rest else {}


def filled(by_place: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the rests of blocks, each at the place of its block; none if all are empty."""
    return by_place if any(by_place) else []


class Rests:
    """The rests of the records of one conversation, in order.

    Most members repeat those of the record before, such as the program's release: a value is kept again only
    if it changes.
    """

    def __init__(self, known: Mapping[str, object] | None = None) -> None:
        """Begin with the values that the conversation itself carries."""
        self._last: dict[tuple[str, ...], object] = {}
        self._changed(known or {}, ())

    def parts(self, name: str, rest: Mapping[str, object]) -> tuple[Record, ...]:
        """Return the rest of the next record as a part, the last one of its node; nothing if none is new."""
        changed = self._changed(rest, ())
        return (Record(name=f"members of {name}", value=changed, why=Kept.BOOKKEEPING),) if changed else ()

    def _changed(self, rest: Mapping[str, object], path: tuple[str, ...]) -> dict[str, object]:
        changed: dict[str, object] = {}
        for name, value in rest.items():
            if isinstance(value, Mapping) and value:
                if inner := self._changed(value, (*path, name)):
                    changed[name] = inner
            elif self._is_new((*path, name), value):
                changed[name] = value
        return changed

    def _is_new(self, path: tuple[str, ...], value: object) -> bool:
        told = _compared(value)
        if self._last.get(path) == told:
            return False
        if path in self._last or len(self._last) < PATHS_MAX:
            self._last[path] = told
        return True


def _compared(value: object) -> object:
    """Return a small stand-in for a value, to compare the next value with it."""
    if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= SHORT_CHARACTERS):
        return (type(value), value)
    text = columns.as_json(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest() if text else object()
