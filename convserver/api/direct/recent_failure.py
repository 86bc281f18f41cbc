"""A failure of the database that was long in coming, remembered for a moment: no other read waits as long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from convserver.api.direct.outcomes import FAILURE
from convserver.api.errors import UNAVAILABLE
from sessions_app.event_loops import PerEventLoop

T = TypeVar("T")

# A failure that comes sooner is not remembered: one broken connection says little.
LONG_S = 1.0
# As long as this, others get the failure without a try of their own.
REMEMBERED_S = 1.0


class RecentFailure:
    """The newest failure that the reads of one event loop have waited for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._error: Exception | None = None
        self._until = 0.0

    @property
    def is_remembered(self) -> bool:
        """Whether there was one just now."""
        return self._error is not None and self._clock() < self._until

    def run(self, function: Callable[[], T]) -> T:
        """Call `function`, in any thread. Raise what it raises, or the failure that is remembered."""
        if self._error is not None and self.is_remembered:
            # A new one for each thread: what is raised gets a traceback. Its sentence is that of the cause.
            raise type(self._error)(*self._error.args) from self._error.__cause__
        began = self._clock()
        try:
            return function()
        except UNAVAILABLE as error:
            if self._clock() - began >= LONG_S:
                self._error, self._until = error, self._clock() + REMEMBERED_S
            raise

    def note_in(self, scope: dict[str, Any], error: Exception) -> None:
        """Put a remembered failure into the scope: the view answers with it and does not wait."""
        if self.is_remembered:
            scope[FAILURE] = error


_recent_failures = PerEventLoop(RecentFailure)


def recent_failure() -> RecentFailure:
    """Return what the running event loop remembers."""
    return _recent_failures.get()
