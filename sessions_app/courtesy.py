"""Calls go before histories: who reads a long log waits while somebody waits for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

GIVE_WAY_S = 0.02
"""A reader waits no longer than this before each of its steps: calls that never cease do not stop it."""


class Courtesy:
    """The calls that one event loop has not answered yet, and the readers that let them pass."""

    def __init__(self) -> None:
        self._calls: set[object] = set()
        self._none = asyncio.Event()
        self._none.set()
        self._turn = asyncio.Lock()

    @contextmanager
    def call(self) -> Iterator[Callable[[], None]]:
        """Count a call until what is yielded is called, or the block ends."""
        call = object()

        def answered() -> None:
            self._calls.discard(call)
            if not self._calls:
                self._none.set()

        self._calls.add(call)
        self._none.clear()
        try:
            yield answered
        finally:
            answered()

    async def give_way(self) -> None:
        """Return once every call has its answer, or after GIVE_WAY_S; of several readers one at a time."""
        async with self._turn:
            await asyncio.sleep(0)  # a call that has come in by now is counted
            if self._calls:
                with suppress(TimeoutError):
                    async with asyncio.timeout(GIVE_WAY_S):
                        await self._none.wait()


async def counted(application: Any, scope: Any, receive: Any, send: Any) -> None:
    """Serve a request by the application, as a call until its answer begins: a download is none."""
    with courtesy().call() as answered:

        async def send_counted(message: Any) -> None:
            answered()
            await send(message)

        await application(scope, receive, send_counted)


_courtesies: WeakKeyDictionary[asyncio.AbstractEventLoop, Courtesy] = WeakKeyDictionary()


def courtesy() -> Courtesy:
    """Return the courtesy of the running event loop."""
    return _courtesies.setdefault(asyncio.get_running_loop(), Courtesy())
