"""The calls of a streamed chat completion, put together from their pieces.

Servers number pieces in many ways: all 0, with gaps, anew for each piece, or not at all. A new id or a new
name begins a call; other pieces belong to the call of their number or their place. A piece that fits several
calls makes all of them unclear, and an unclear call is incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.agents.llm.streams.answer import (
    CallBudget,
    ObjectScan,
    arguments_text,
    fields_of,
    text_of,
)

_KNOWN = frozenset({"index", "id", "type", "function"})


class OpenCall:
    """A call, as far as its pieces are read."""

    def __init__(self, index: object, call_id: str, name: str) -> None:
        self._index = index
        self._others: set[object] = set()
        """Further numbers of its pieces; they count until the arguments are whole."""
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []
        self.opaque: dict[str, Any] = {}
        self.is_unclear = False
        self._size = 0
        self._scan = ObjectScan()

    def add(self, arguments: str) -> None:
        if arguments:
            self.pieces.append(arguments)
            self._size += len(arguments)
            self._scan.add(arguments)

    def has(self, arguments: str) -> bool:
        """Return whether these are all of its arguments."""
        return len(arguments) == self._size and arguments == "".join(self.pieces)

    def has_number(self, index: object) -> bool:
        """Return whether a number names this call."""
        return index == self._index or (index in self._others and not self.is_object)

    def take_number(self, index: object) -> None:
        self._others.add(index)

    @property
    def is_object(self) -> bool:
        """Whether its arguments are a whole JSON object."""
        return self._scan.has_ended


class CallPieces:
    """Puts the pieces of an answer's calls together."""

    def __init__(self) -> None:
        self.calls: list[OpenCall] = []
        self._budget = CallBudget()

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add a piece: a member of `tool_calls`. Raise TooManyCalls."""
        function = fields_of(piece.get("function"))
        index, call_id = piece.get("index"), text_of(piece.get("id"))
        name, arguments = text_of(function.get("name")), arguments_text(function.get("arguments"))
        self._budget.take(chars=len(arguments))
        call = self._call(index, call_id, name, arguments)
        if call is None:
            return
        call.id, call.name = call.id or call_id, call.name or name
        call.opaque |= {key: value for key, value in piece.items() if key not in _KNOWN and value}
        if not (call_id and call.is_object and call.has(arguments)):  # otherwise it is a repetition
            call.add(arguments)

    def _call(self, index: object, call_id: str, name: str, arguments: str) -> OpenCall | None:
        """Return the call of a piece, perhaps a new one; None for a superfluous piece."""
        named = next((call for call in reversed(self.calls) if call_id and call.id == call_id), None)
        if isinstance(index, int):
            numbered = next((call for call in reversed(self.calls) if call.has_number(index)), None)
        else:
            numbered = self.calls[-1] if self.calls else None
        if name and self._begins(named, numbered, index, call_id, name, arguments):
            return self._begun(index, call_id, name)
        found = named or numbered
        if found is None and not self.calls:
            return self._begun(index, call_id, name)
        return found or self._open(index, arguments)

    def _begins(
        self,
        named: OpenCall | None,
        numbered: OpenCall | None,
        index: object,
        call_id: str,
        name: str,
        arguments: str,
    ) -> bool:
        """Return whether a piece with a name begins a call."""
        known = named if call_id else numbered
        if known is None:
            # A call without a name waits for it.
            return not (numbered is not None and not numbered.name and not (call_id and numbered.id))
        if known.name and known.name != name:
            return True
        if not known.is_object or not arguments.strip():
            return False
        is_elsewhere = isinstance(index, int) and not known.has_number(index)
        return is_elsewhere or not (call_id and known.has(arguments))

    def _begun(self, index: object, call_id: str, name: str) -> OpenCall:
        self._budget.take(calls=1)
        self.calls.append(OpenCall(index, call_id, name))
        return self.calls[-1]

    def _open(self, index: object, arguments: str) -> OpenCall | None:
        """Return the only unfinished call, for a piece without a known number."""
        if not arguments.strip():
            return None
        unfinished = [call for call in self.calls if not call.is_object]
        if len(unfinished) != 1:
            for call in unfinished or self.calls[-1:]:
                call.is_unclear = True
            return None
        if isinstance(index, int):
            unfinished[0].take_number(index)
        return unfinished[0]
