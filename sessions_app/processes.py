"""Which process is which, so that a dead one is known for dead at once."""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import NamedTuple

import psutil

_START_TIME_TOLERANCE_S = 1.0


class Process(NamedTuple):
    """One process of one host; the start time tells it from a later one with its number."""

    host: str
    pid: int
    started: float


@cache
def _started(pid: int) -> float:
    return psutil.Process(pid).create_time()


def this_process() -> Process:
    """Return the running process; right after a fork, too."""
    pid = os.getpid()
    return Process(socket.gethostname(), pid, _started(pid))


def is_gone(process: Process) -> bool:
    """Say whether the process certainly does not run any more; of another host nothing is certain."""
    if process.host != socket.gethostname():
        return False
    try:
        other = psutil.Process(process.pid)
        return other.status() == psutil.STATUS_ZOMBIE or abs(other.create_time() - process.started) > (
            _START_TIME_TOLERANCE_S
        )
    except psutil.NoSuchProcess:
        return True
