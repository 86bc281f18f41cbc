"""The calls in a streamed chat completion: which piece belongs to which call.

Servers number pieces in many ways: all 0, with gaps, anew for each piece, or not at all. A new id or a new
name begins a call whatever its number; other pieces belong to the call that their number or their place says.
A piece that fits several calls makes all of them unclear, and an unclear call is not complete.
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
    """A call whose pieces come."""

    def __init__(self, index: object, call_id: str, name: str) -> None:
        self._index = index
        self._others: set[object] = set()
        """Numbers of pieces that were found to belong here: they count until the arguments are whole."""
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []
        self.opaque: dict[str, Any] = {}
        self.is_unclear = False
        self._size = 0
        self._scan = ObjectScan()

    def add(self, arguments: str) -> None:
        """Add a piece of the arguments."""
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
        """Let a number name this call, too."""
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
        if not (call_id and call.is_object and call.has(arguments)):  # else it came twice
            call.add(arguments)

    def _call(self, index: object, call_id: str, name: str, arguments: str) -> OpenCall | None:
        """Return the call of a piece: one that is there, or a new one; None for one that nothing needs."""
        named = self._with_id(call_id)
        numbered = self._with_index(index)
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

    def _with_id(self, call_id: str) -> OpenCall | None:
        if not call_id:
            return None
        return next((call for call in reversed(self.calls) if call.id == call_id), None)

    def _with_index(self, index: object) -> OpenCall | None:
        """Return the newest call with a number; without one, the newest of all."""
        if not isinstance(index, int):
            return self.calls[-1] if self.calls else None
        return next((call for call in reversed(self.calls) if call.has_number(index)), None)

    def _open(self, index: object, arguments: str) -> OpenCall | None:
        """Return the only call that still needs arguments, for a piece that names none."""
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
