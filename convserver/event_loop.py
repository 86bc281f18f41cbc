"""The server's event loop, where the manager lives and appends are gathered, for views, which are threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from asgiref.sync import async_to_sync
from django.db import connection, transaction

from conversations.events import ConversationRef
from sessions_app.loops.manager import get_manager

P = ParamSpec("P")
T = TypeVar("T")


def in_loop(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Await on the event loop what a function returns, and return the result."""
    # The function may need a connection of the bounded pool: if all threads held theirs and waited for one
    # more, none would ever get it.
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        connection.close()

    async def run() -> T:  # not `function` itself: it may be a lambda, which asgiref warns of
        return await function(*args, **kwargs)

    return async_to_sync(run)()


def start_after_commit(conversation: ConversationRef) -> None:
    """Start the conversation's loop once the transaction is committed, without waiting for it."""

    async def start() -> None:
        get_manager().start_soon(conversation)

    # Not before the commit: the loop, in another thread, would not find the conversation.
    transaction.on_commit(partial(in_loop, start))
