"""The server's event loop, where the manager lives and appends are gathered, for views, which are threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import async_to_sync
from django.db import connection

P = ParamSpec("P")
T = TypeVar("T")


def in_loop(function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function on the event loop and return what it returns."""
    # The function may need a connection of the bounded pool: if all threads held theirs and waited for one
    # more, none would ever get it.
    if connection.vendor == "postgresql" and not connection.in_atomic_block:
        connection.close()
    return async_to_sync(function)(*args, **kwargs)
