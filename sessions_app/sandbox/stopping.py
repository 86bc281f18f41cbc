"""Programs of a sandbox that do nothing for a moment (Linux)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_FIRST = "1"
"""The first process of a namespace only waits for the others."""


class _State(NamedTuple):
    letter: str
    parent: str


def stop(processes: Iterable[str], stopped: list[str], most_s: float = 0.05) -> None:
    """Stop all of these directories of /proc that run, and append them to `stopped`.

    To be called again, with the list read again, until it appends no more: a program may have started
    another one meanwhile.
    """
    end, known = time.monotonic() + most_s, set(stopped)
    left = {each: state for each in processes if each not in known and (state := _state_of(each))}
    while left:
        is_late = time.monotonic() > end
        for each, state in list(left.items()):
            # A shell that still runs takes a program that stops for a job that the user has stopped.
            above = _state_of(f"{os.path.dirname(each)}/{state.parent}")  # noqa: PTH120
            if is_late or above is None:
                _signal(each, signal.SIGSTOP)
                stopped.append(each)
                del left[each]
        if left:
            time.sleep(0.0002)


def go_on(stopped: list[str]) -> None:
    """Continue the programs that `stop` has stopped: each program before its parent."""
    for each in reversed(stopped):
        _signal(each, signal.SIGCONT)


def _state_of(process: str) -> _State | None:
    """Return the state of a process that may still run; None for one that is stopped, gone, or the first."""
    with suppress(OSError, ValueError):  # the process has ended
        if not process.endswith(f"/{_FIRST}"):
            letter, parent = Path(process, "stat").read_text("latin-1").rpartition(")")[2].split()[:2]
            return None if letter in "TtZX" else _State(letter, parent)
    return None


def _signal(process: str, number: signal.Signals) -> None:
    """Send a signal to the process of this directory, and to none that has got its number meanwhile."""
    with suppress(OSError):
        descriptor = os.open(process, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
