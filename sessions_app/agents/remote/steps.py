"""The steps of a turn that a program has sent, as the socket has read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.agents.base import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of a turn."""

    id: str | int | None
    """The frame's id, which identifies the step in its turn; None where the program wants no answer."""
    turn: str
    epoch: int

    @property
    def key(self) -> str:
        """The id as text; other frames name the step by it."""
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
    """A message; without a text it is what its pieces say."""

    text: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(Step):
    """A tool call, which the program runs once it is acknowledged; with `asks` once the user approves."""

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
    """A question what the user has said meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause(Step):
    """A notice, with which the turn waits for the user."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish(Step):
    """The last words of an agent whose task is done; they end the turn."""

    text: str
    thought: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Count(Step):
    """What a call of a model used."""

    usage: Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Reserve(Step):
    """What a call of a model will use at least, before it is made."""

    expected: Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Fail(Step):
    """The end of a turn that cannot be played on, and why."""

    text: str
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Done(Step):
    """The end of the turn."""


AnyStep = Piece | Say | Call | Start | Result | Look | Pause | Finish | Reserve | Count | Fail | Done
