"""Sockets that are being opened: with accounts, those of one user open one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sessions_app.capacity.shares import Shares
from sessions_app.event_loops import PerEventLoop

OPENINGS, OPENINGS_OF_ONE = 16, 1
"""At most this many sockets are opened at a time; with accounts, at most this many of one user."""

_shares = PerEventLoop(lambda: Shares(OPENINGS, of_one=OPENINGS_OF_ONE))


@asynccontextmanager
async def opening(user_pk: int, *, wait_s: float = 5.0) -> AsyncIterator[None]:
    """Wait for the user's earlier sockets, at most this long, and open one in the block.

    If the database is away, each of the earlier ones takes a whole timeout.
    """
    shares = _shares.get()
    has_slot = True
    try:
        async with asyncio.timeout(wait_s):
            await shares.take(user_pk)
    except TimeoutError:
        has_slot = False
    try:
        yield
    finally:
        if has_slot:
            shares.give_back(user_pk)
