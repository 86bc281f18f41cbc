"""What a fault is: something that is broken, and mended again while clients go on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from faults.suite.installations import Installation

I = TypeVar("I", bound=Installation)  # noqa: E741


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault(Generic[I]):
    """One kind of fault."""

    name: str
    """Unique; a row of the table."""
    rows: tuple[str, ...]
    """The rows of the fault catalogue that it covers, at least in part."""
    inject: Callable[[I, random.Random], Awaitable[None]]
    """Break, hold, and mend."""
    counts_from_begin: bool = False
    """Whether the time until service counts from the fault, and not from when it was mended."""


async def hold(rng: random.Random, least_s: float, most_s: float) -> None:
    """Wait for a seeded time."""
    await asyncio.sleep(rng.uniform(least_s, most_s))
