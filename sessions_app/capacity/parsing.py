"""Work on what clients sent that takes long for its size: off the event loop, one user after the other.

There is one thread for it, because the interpreter runs one thread at a time: a second would finish nothing
sooner, and keep the event loop waiting longer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

CHARACTERS_PER_S = 32 * 1024 * 1024
"""One user's large texts are read at this rate on average: to receive them takes time of the event loop."""
REST_MAX_S = 0.25
"""After a piece of work the thread rests for as long as that took, and no longer than this.

So whoever waited for the interpreter meanwhile is served before the next piece, however many there are.
"""

HELD_BACK_MAX_S = 0.05
"""A piece of work waits at most this long for a long write to end."""

Work = Callable[[], None]

_none_is_written = threading.Event()
_none_is_written.set()


@contextmanager
def held_back() -> Iterator[None]:
    """Begin no piece of work while the block runs, which is a long write for one user.

    Both would take the interpreter from each other, and whoever waits for the write would wait twice as long.
    """
    _none_is_written.clear()
    try:
        yield
    finally:
        _none_is_written.set()


class TurnTaker:
    """Runs functions in one thread, and takes one from each user in turn."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parser")
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Work]] = {}
        """By user: what waits behind the one piece that is with the thread."""

    def submit(
        self, user: Hashable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Queue a function of this user's, given by their key, or their address if they are unknown."""
        future: Future[T] = Future()

        def work() -> None:
            _settle(future, lambda: function(*args, **kwargs))

        with self._lock:
            if user in self._waiting:
                self._waiting[user].append(work)
            else:
                self._waiting[user] = deque()
                self._thread.submit(self._run, user, work)
        return future

    def _run(self, user: Hashable, work: Work) -> None:
        _none_is_written.wait(HELD_BACK_MAX_S)
        began = time.monotonic()
        work()
        time.sleep(min(time.monotonic() - began, REST_MAX_S))
        with self._lock:
            if not self._waiting[user]:
                del self._waiting[user]
                return
            work = self._waiting[user].popleft()
        try:
            self._thread.submit(self._run, user, work)
        except RuntimeError:  # the process ends; a thread that waits for this work would keep it from ending
            self._run(user, work)


def _settle(future: Future[T], function: Callable[[], T]) -> None:
    """Run the function for its future, unless that was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class Pace:
    """When each user's next large text may be read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_at: dict[Hashable, float] = {}

    def __len__(self) -> int:
        """Return of how many users it knows something."""
        return len(self._free_at)

    def delay_s(self, user: Hashable, characters: int, *, now: float) -> float:
        """Count a text that came at this moment, in seconds; return how long it waits for those before it."""
        with self._lock:
            free_at = max(now, self._free_at.pop(user, now))
            while self._free_at and next(iter(self._free_at.values())) <= now:
                del self._free_at[next(iter(self._free_at))]
            self._free_at[user] = free_at + characters / CHARACTERS_PER_S
        return free_at - now


_turns = TurnTaker()
_pace = Pace()


def _delay_s(user: Hashable, args: Iterable[object]) -> float:
    """Return how long a text among these has to wait; what was made of one has waited with it."""
    characters = sum(len(each) for each in args if isinstance(each, str))
    return _pace.delay_s(user, characters, now=time.monotonic()) if characters else 0.0


async def in_turn(
    user: Hashable, is_light: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return what a function makes of what a user sent.

    It runs at once if that is light (jsonbounds), otherwise in its turn, in another thread; it must not use
    the database.
    """
    if is_light:
        return function(*args, **kwargs)
    await asyncio.sleep(_delay_s(user, args))
    return await asyncio.wrap_future(_turns.submit(user, function, *args, **kwargs))


def in_turn_from_thread(
    user: Hashable, is_light: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Do the same in a thread that may wait."""
    if is_light:
        return function(*args, **kwargs)
    time.sleep(_delay_s(user, args))
    return _turns.submit(user, function, *args, **kwargs).result()
