"""Work on what clients sent that takes long for its size: off the event loop, one user after the other.

There is one thread for it, because the interpreter runs one thread at a time: a second would finish nothing
sooner, and keep the event loop waiting longer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from sessions_app.capacity.fair_queue import FairQueue
from sessions_app.event_loops import PerEventLoop

# To receive them takes time of the event loop, and so of all users.
SIZE_PER_S = 16 * 1024 * 1024
"""This much of one user's large texts and bodies is read in a second."""

P = ParamSpec("P")
T = TypeVar("T")


class FairThread:
    """Runs functions in one thread, one of each user after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parser")
        self._lock = threading.Lock()
        self._waiting: FairQueue[tuple[Future[Any], Callable[[], Any]]] = FairQueue(quantum=1)

    def submit(
        self, user: Hashable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Queue a function of this user's, given by their key, or their address if they are unknown."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.put(user, (future, partial(function, *args, **kwargs)), cost=1)
            self._thread.submit(self._run_next)
        return future

    def _run_next(self) -> None:
        with self._lock:
            future, function = self._waiting.take()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except BaseException as error:  # passed to the caller
            future.set_exception(error)


class Pace:
    """When each user's next large text may be read."""

    def __init__(self) -> None:
        self._free_at: dict[Hashable, float] = {}

    def __len__(self) -> int:
        """Return of how many users it knows something."""
        return len(self._free_at)

    def delay_s(self, user: Hashable, size: int, *, now: float) -> float:
        """Count a text that came at this moment, in seconds; return how long it waits for those before it."""
        free_at = max(now, self._free_at.pop(user, now))
        while self._free_at and next(iter(self._free_at.values())) <= now:
            del self._free_at[next(iter(self._free_at))]
        self._free_at[user] = free_at + size / SIZE_PER_S
        return free_at - now


_thread = FairThread()
_paces = PerEventLoop(Pace)


async def paced(user: Hashable, size: int) -> None:
    """Wait until the user's next large text of this size may be read."""
    await asyncio.sleep(_paces.get().delay_s(user, size, now=time.monotonic()))


async def in_turn(
    user: Hashable, is_light: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what a function makes of what a user sent.

    It runs at once if that is light (jsonbounds), otherwise in another thread, where users alternate; it must
    not use the database.
    """
    if is_light:
        return function(*args, **kwargs)
    if size := sum(len(each) for each in args if isinstance(each, str)):  # else it was made of a paced text
        await paced(user, size)
    return await asyncio.wrap_future(_thread.submit(user, function, *args, **kwargs))


def in_turn_from_thread(
    user: Hashable, is_light: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Do the same in a thread that may wait; a body has been paced before."""
    if is_light:
        return function(*args, **kwargs)
    return _thread.submit(user, function, *args, **kwargs).result()
