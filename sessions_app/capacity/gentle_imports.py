"""A long import in a thread that gives way to calls: between two modules it waits until they are answered.

Both need the interpreter, and a call without this would wait for it at each of its steps.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType

from sessions_app.capacity.calls import Calls

LOOK_S = 0.001
WAIT_MAX_S = 0.02
"""An endless series of calls makes the import slow, and does not stop it."""


class _GivingWay(MetaPathFinder):
    """Finds nothing, and waits instead: it is asked before each module that its thread imports."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Return once no call waits."""
        if threading.get_ident() != self._thread:
            return
        until = time.monotonic() + WAIT_MAX_S
        while self._calls.are_waiting and time.monotonic() < until:
            time.sleep(LOOK_S)


@contextmanager
def giving_way(calls: Calls) -> Iterator[None]:
    """Let the imports of this thread wait for these calls, before each module at most WAIT_MAX_S."""
    finder = _GivingWay(calls)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
