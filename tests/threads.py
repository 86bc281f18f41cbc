"""Work that several threads do at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import connections


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Call `work` with each number below `count`, all at the same moment, each on its own connection."""
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait(30)
        try:
            work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))
