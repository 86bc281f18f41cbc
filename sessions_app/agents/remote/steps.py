"""The steps of a turn that a program sends, as the socket reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.agents.base import CallUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of a turn."""

    id: str | int | None
    """The frame's id, unique in the turn; None if the program wants no acknowledgement."""
    turn: str
    epoch: int

    @property
    def key(self) -> str:
        """The id as text, as other frames have it."""
        return str(self.id)


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece(Step):
    """A piece of an answer or of the reasoning behind it; `answer` is the id of the `Say` that ends it."""

    answer: str
    index: int
    text: str
    is_reasoning: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Say(Step):
    """A message; without a text, the text of its pieces."""

    text: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(Step):
    """A tool call; the program runs it after the acknowledgement, with `asks` after an approval."""

    name: str
    arguments: Mapping[str, Any]
    thought: str
    asks: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Start(Step):
    """The start of the call with this id: only one program may run it."""

    call: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Result(Step):
    """The result of the call with this id."""

    call: str
    content: str
    exit_code: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Look(Step):
    """A request for the user's new messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause(Step):
    """A notice that suspends the turn."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish(Step):
    """The last words of a finished task; they end the turn."""

    text: str
    thought: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Count(Step):
    """The usage of a call of a model."""

    usage: CallUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class Reserve(Step):
    """The least usage of a call of a model, sent before the call."""

    expected: CallUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class Fail(Step):
    """The end of a turn that failed."""

    text: str
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Done(Step):
    """The end of the turn."""


AnyStep = Piece | Say | Call | Start | Result | Look | Pause | Finish | Reserve | Count | Fail | Done
