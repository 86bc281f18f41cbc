"""Freed memory that the C library keeps for later: bounded, and returned to the system.

Only for glibc, which has up to eight heaps for each processor, and by itself returns just their ends: what a
burst of long frames, bodies or answers has needed would stay for good.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from pathlib import Path

# Enough for Python code, of which one thread runs at a time.
HEAPS = 2
# What is longer is mapped by itself, and returned when it is freed. glibc would raise this limit to the
# length of what was freed last, and keep all that is shorter in a heap.
LONG_BYTES = 1024 * 1024
KEPT_BYTES = 64 * 1024 * 1024
"""The process may keep this much more than it had at its start."""
ROUND_S, LONGEST_ROUND_S = 2.0, 60.0
"""Between rounds, and between those that found nothing to return."""

# For `gc.set_threshold`: the oldest objects hardly ever by their number. With 1,500 open sockets that takes
# 0.1 s, in which no client is answered; `keep_low` does it when memory has grown.
COLLECTED_AFTER = (1_000, 20, 1_000_000)

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h


def bound() -> None:
    """Keep heaps few and free of long texts; for a process that has no thread yet."""
    if _library is not None:
        _library.mallopt(_M_ARENA_MAX, HEAPS)
        _library.mallopt(_M_MMAP_THRESHOLD, LONG_BYTES)
        gc.set_threshold(*COLLECTED_AFTER)  # elsewhere `keep_low` does nothing


def trim() -> None:
    """Return unused memory to the system; it takes about 0.2 ms for a megabyte."""
    if _library is not None:
        _library.malloc_trim(0)


async def give_back() -> None:
    """Do that in a thread."""
    if _library is not None:
        await asyncio.to_thread(trim)


async def keep_low() -> None:
    """Return unused memory whenever the process has grown, until cancelled."""
    if _library is None:
        return
    limit, pause = _resident_bytes() + KEPT_BYTES, ROUND_S
    while True:
        await asyncio.sleep(pause)
        before = _resident_bytes()
        if before < limit:
            pause = ROUND_S
            continue
        gc.collect()  # requests and their answers refer to each other, and may be long; few objects are new
        await give_back()
        has_helped = _resident_bytes() < 0.9 * before
        pause = ROUND_S if has_helped else min(2 * pause, LONGEST_ROUND_S)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _loaded() -> ctypes.CDLL | None:
    """Return the C library, if it is glibc."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") else None


_library = _loaded()
