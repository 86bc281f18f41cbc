"""What a drill is: something that must hold, tried by itself and judged at once."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from faults.suite.installations import Installation
from faults.suite.rounds import Result

I = TypeVar("I", bound=Installation)  # noqa: E741


@dataclass(frozen=True, kw_only=True, slots=True)
class Drill(Generic[I]):
    """One drill on a running installation, which it leaves as it was."""

    name: str
    """Unique among the kinds of fault; a row of the table."""
    rows: tuple[str, ...]
    """The rows of the fault catalogue that it covers, at least in part."""
    run: Callable[[I, random.Random], Awaitable[Result]]


def found_wrong(result: Result, rule: str, sentences: Iterable[str]) -> None:
    """Add sentences about a broken rule to a result."""
    for sentence in sentences:
        result.broken[rule] += 1
        result.sentences.append(sentence)
