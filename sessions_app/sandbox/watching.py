"""The memory of all programs in a sandbox, measured from outside (Linux)."""

from __future__ import annotations

import os
import random
import re
import select
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sessions_app.sandbox.base import SandboxLimits

_RESIDENT = re.compile(rb"^Rss(?:Anon|Shmem):\s+(\d+) kB", re.MULTILINE)
_PROPORTIONAL = re.compile(rb"^Pss_(?:Anon|Shmem):\s+(\d+) kB", re.MULTILINE)


def watch(process: int, first: int, limits: SandboxLimits, end: Callable[[str], None]) -> None:
    """Wait for the end of the process with this descriptor; end it, once, if it uses too much memory.

    `first` is the first process of its namespace. RLIMIT_DATA bounds each process, and this bounds their sum.
    """
    seldom_s, often_s = 0.2, 0.05
    most = limits.memory_mb * 1_000_000
    poll = select.poll()
    poll.register(process, select.POLLIN)
    wait_s, is_ended = seldom_s, False
    while not poll.poll(wait_s * 1000):
        began = time.monotonic()
        used = 0 if is_ended else _memory_of(f"/proc/{first}/root/proc", most)
        # However many processes there are, this takes a fifth of the time of one processor at most.
        wait_s = max(often_s if used > most / 4 else seldom_s, 4 * (time.monotonic() - began))
        if used > most:
            is_ended = True
            end(
                f"The programs of this command used more than {limits.memory_mb:,} MB of memory together, so "
                "all of them were ended. Use less, or let the server's operator raise the limit "
                "(CONVSERVER_SANDBOX_MEMORY_MB)."
            )


def _memory_of(processes: str, most: int) -> int:
    """Return the bytes that processes use, files that exist in memory included.

    `processes` is the /proc of their namespace, which names no others.
    """
    found = processes_in(processes)
    files = _memory_files(found)
    used = files + sum(_sum_of(f"{each}/status", _RESIDENT) for each in found)
    # What processes share is counted for each of them there, and below once, which takes as long as there is
    # much to count.
    shared_most = 8
    if not most < used <= shared_most * most:
        return used
    return files + sum(_sum_of(f"{each}/smaps_rollup", _PROPORTIONAL) for each in found)


def processes_in(processes: str) -> list[str]:
    """Return the directories of all processes in the /proc of a namespace."""
    try:
        # Until the sandbox has its own root, this is the /proc of the machine.
        if Path(processes).stat().st_dev == Path("/proc").stat().st_dev:
            return []
        return [f"{processes}/{each}" for each in os.listdir(processes) if each.isdecimal()]  # noqa: PTH208
    except OSError:
        return []


def _memory_files(processes: list[str]) -> int:
    """Return the bytes of files that processes made in memory, which they need not map.

    Of very many open files, some chosen by chance are looked at: each time others.
    """
    looked_at_most = 2_000
    sizes: dict[tuple[int, int], int] = {}
    opened: list[str] = []
    for each in random.sample(processes, len(processes)):
        if len(opened) < 10 * looked_at_most:
            opened += _descriptors(each)
    for descriptor in random.sample(opened, min(len(opened), looked_at_most)):
        with suppress(OSError):
            if os.readlink(descriptor).startswith("/memfd:"):  # noqa: PTH115
                about = Path(descriptor).stat()
                sizes[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(sizes.values())


def _descriptors(process: str) -> list[str]:
    try:
        return [f"{process}/fd/{each}" for each in os.listdir(f"{process}/fd")]  # noqa: PTH208
    except OSError:  # the process has ended
        return []


def _sum_of(path: str, figures: re.Pattern[bytes]) -> int:
    try:
        return 1024 * sum(int(each) for each in figures.findall(Path(path).read_bytes()))
    except OSError:  # the process has ended
        return 0
