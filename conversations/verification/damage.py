"""What a verification reports about the damage that it found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from conversations.models import DamageKind

# At most this many findings of one conversation are kept; the last of them says that there are more.
PER_CONVERSATION_MAX = 100


class Damage(NamedTuple):
    problem: DamageKind
    conversation_pk: int | None  # None if no existing conversation has it
    conversation_id: str  # the public id; empty without a conversation
    seq: int | None  # the first place in the log; None for the whole of it
    detail: str

    @classmethod
    def of_none(cls, problem: DamageKind, detail: str, *, seq: int | None = None) -> Self:
        """Return damage that no existing conversation has."""
        return cls(problem, None, "", seq, detail)

    def shown(self) -> dict[str, Any]:
        return {
            "conversation": self.conversation_id or None,
            "seq": self.seq,
            "problem": self.problem.value,
            "detail": self.detail,
        }

    def line(self) -> str:
        """Return the damage as a line for people."""
        place = f"conversation {self.conversation_id}" if self.conversation_id else "store"
        return f"{place}{'' if self.seq is None else f', seq {self.seq}'}: {self.detail}"


class DamageList:
    """The damage of one conversation, at most PER_CONVERSATION_MAX."""

    def __init__(self, conversation_pk: int, conversation_id: str) -> None:
        self._pk, self._id = conversation_pk, conversation_id
        self._found: list[Damage] = []
        self._more = 0

    def add(self, problem: DamageKind, seq: int | None, detail: str) -> None:
        if len(self._found) < PER_CONVERSATION_MAX:
            self._found.append(Damage(problem, self._pk, self._id, seq, detail))
        else:
            self._more += 1

    def __iter__(self) -> Iterator[Damage]:
        if not self._more:
            return iter(self._found)
        *kept, last = self._found
        more = f"{last.detail} {self._more:,} more places of this conversation are damaged."
        return iter([*kept, last._replace(detail=more)])
