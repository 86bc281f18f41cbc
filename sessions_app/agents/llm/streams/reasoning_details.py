"""`reasoning_details` of OpenRouter: what a provider has thought and signed, and wants back with calls."""

from __future__ import annotations

from typing import Any

from sessions_app.agents.llm.streams.answer import fields_of, text_of
from sessions_app.agents.llm.streams.signatures import SIGNED_MAX_CHARS

MEMBER = "reasoning_details"
# By the types of details: the member of which each piece has only a part.
_GROWING = {"reasoning.text": "text", "reasoning.summary": "summary"}


class ReasoningDetails:
    """Puts the pieces of an answer's details together."""

    def __init__(self) -> None:
        self._details: list[tuple[dict[str, Any], list[str]]] = []
        self._chars = 0

    def add(self, pieces: object) -> None:
        """Add the details of one chunk; a piece of the same type and number continues the one before."""
        for piece in pieces if isinstance(pieces, list) else []:
            fields = fields_of(piece)
            self._chars += sum(len(each) for each in fields.values() if isinstance(each, str))
            if not fields or self._chars > SIGNED_MAX_CHARS:
                continue
            growing = _GROWING.get(text_of(fields.get("type")))
            part = text_of(fields.pop(growing, "")) if growing else ""
            known, parts = self._details[-1] if self._details else ({}, [])
            if growing and (known.get("type"), known.get("index")) == (fields["type"], fields.get("index")):
                known |= {name: value for name, value in fields.items() if value is not None}
                parts.append(part)
            else:
                self._details.append((fields, [part]))

    def whole(self) -> list[dict[str, Any]]:
        """Return the details; none if they are too long to be kept."""
        # A part of them is worth nothing to their server.
        if self._chars > SIGNED_MAX_CHARS:
            return []
        found = []
        for fields, parts in self._details:
            growing = _GROWING.get(text_of(fields.get("type")))
            found.append({**fields, growing: "".join(parts)} if growing else fields)
        return found
