"""Rounds of the manager's tasks: failures are logged, and several conversations are handled at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Any

from conversations.events import ConversationRef
from conversations.exceptions import StoreUnavailable
from conversations.outages import Outage
from sessions_app.loops.commands import CommandPending

AT_ONCE = 8
"""At most this many of several conversations are stopped, repaired or started at the same time."""


class logged(suppress):  # noqa: N801 - reads as a statement, like suppress itself
    """Log the failures of one round of a task that must continue."""

    def __init__(self, what: str, **facts: object) -> None:
        super().__init__(Exception)
        self._outage = _outage_of(what)
        self._facts = facts

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(exc_value, StoreUnavailable):
            pass  # logged already
        elif isinstance(exc_value, Exception):
            self._outage.failed(exc_value, **self._facts)
        elif exc_value is None:
            self._outage.worked()
        return super().__exit__(exc_type, exc_value, traceback)


@cache
def _outage_of(what: str) -> Outage:
    return Outage(__name__, f"{what} failed and is tried again", f"{what} works again")


async def all_of(*works: Coroutine[Any, Any, None]) -> None:
    """Await all of them to their ends; raise the first failure, with CommandPending last."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    failures = [each for each in outcomes if isinstance(each, BaseException)]
    for failure in sorted(failures, key=lambda each: isinstance(each, CommandPending)):
        raise failure


async def for_each(
    conversations: Sequence[ConversationRef], act: Callable[[ConversationRef], Coroutine[Any, Any, None]]
) -> None:
    """Act on all, AT_ONCE at a time; raise the first failure after that, with CommandPending last."""
    room = asyncio.Semaphore(AT_ONCE)

    async def in_turn(each: ConversationRef) -> None:
        async with room:
            await act(each)

    await all_of(*map(in_turn, conversations))
