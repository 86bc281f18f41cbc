"""Repeated attempts to store what a turn produces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from conversations.engines import failures
from conversations.exceptions import ConversationBusy
from conversations.outages import Outage
from sessions_app import astore

T = TypeVar("T")

AGAIN_S = 0.2

_trying = Outage(
    __name__, "An agent's turn could not be stored and is tried again", "Agents' turns are stored again"
)


async def retry(attempt: Callable[[], Awaitable[T]]) -> T:
    """Await a repeatable attempt; repeat it while the conversation is locked, and after connections broke."""
    left = max(astore.READERS, astore.CHANGERS)  # each thread's connection may be broken
    while True:
        try:
            done = await attempt()
        except ConversationBusy as error:  # without a bound: giving up would lose the agent's work
            _trying.failed(error)
        except (OperationalError, InterfaceError) as error:
            if not left:
                raise
            # A lock, or no free connection: this thread's connection did not break.
            left -= not (failures.is_locked(error) or failures.is_unconnected(error))
            _trying.failed(error)
        else:
            _trying.worked()
            return done
        await asyncio.sleep(AGAIN_S)
