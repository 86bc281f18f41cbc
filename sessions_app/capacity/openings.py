"""Sockets that are being opened: with accounts, those of one user open one after the other."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from sessions_app.capacity.shares import Shares
from sessions_app.event_loops import PerEventLoop

OPENINGS, OPENINGS_OF_ONE = 16, 1
"""At most this many sockets are opened at a time; with accounts, at most this many of one user."""

_shares = PerEventLoop(lambda: Shares(OPENINGS, of_one=OPENINGS_OF_ONE))


def opening(user_pk: int) -> AbstractAsyncContextManager[None]:
    """Wait for the user's earlier sockets, and open one in the block."""
    return _shares.get().place(user_pk)
