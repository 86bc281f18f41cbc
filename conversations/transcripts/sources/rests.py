"""What no event says of a record: its further members, kept as a record beside the events.

A reader names the members that its events carry, and what is left of the record is kept whole, known or
not. An event cannot hold it: clients of its dialect refuse members that they do not know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from conversations.dialects import columns
from conversations.transcripts.sources.nodes import Kept, Record

PATHS_MAX = 1_000
"""The values of this many members are compared with those of the record before."""
SHORT_CHARACTERS = 100

_EMPTY: tuple[object, ...] = (None, {}, [], "")


def left(
    fields: Mapping[str, object], carried: Collection[str], inner: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the members that no event carries, and of the `inner` ones what is left of them.

    One that is null or empty says nothing.
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
    """Return what is left of a block of content, with its type; nothing if all of it is carried."""
    rest = left(block, (*carried, "type"), inner)
    return {"type": block.get("type"), **rest} if rest else {}


def filled(by_place: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the rests of blocks, each at the place of its block; none if there is nothing in any."""
    return by_place if any(by_place) else []


class Rests:
    """The rests of the records of one conversation, in their order.

    Most members repeat those of the record before, such as the release of the program: a value is kept again
    only where it changes.
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
    """Return what is kept of a value to compare the next one with it: little, whatever its size."""
    if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= SHORT_CHARACTERS):
        return (type(value), value)
    text = columns.as_json(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest() if text else object()
