"""Values that belong to one event loop, and work that a cancellation must not interrupt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerEventLoop(Generic[T]):
    """One value for each event loop, created at its first use."""

    def __init__(self, make: Callable[[], T]) -> None:
        """`make` runs on an event loop without a value."""
        self._make = make
        self._values: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        loop = asyncio.get_running_loop()
        if loop not in self._values:
            self._values[loop] = self._make()
        return self._values[loop]

    def pop(self) -> T | None:
        """Return and forget the value of the running event loop; None if it has none."""
        return self._values.pop(asyncio.get_running_loop(), None)


async def uncancelled(work: Awaitable[T]) -> T:
    """Await work that must not be interrupted: a cancellation takes effect after it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


class _Begun(Awaitable[None]):
    """A coroutine that has run until it waited for something."""

    def __init__(self, work: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._work, self._waits_for = work, waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            while True:
                try:
                    answer = yield self._waits_for
                except GeneratorExit:
                    self._work.close()
                    raise
                except BaseException as error:  # a cancellation
                    self._waits_for = self._work.throw(error)
                else:
                    self._waits_for = self._work.send(answer)
        except StopIteration:
            return


def begun(work: Coroutine[Any, Any, None]) -> Awaitable[None] | None:
    """Run a coroutine in this task until it waits; return the rest to await, None if it did not wait."""
    try:
        return _Begun(work, work.send(None))
    except StopIteration:
        return None
