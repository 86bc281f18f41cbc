"""A clock that others move: the processes of a run read how far it is off from a file that they share."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

_FORM = struct.Struct("d")


class Clock:
    """The file, which every process maps: seconds by which the time of day is off."""

    def __init__(self, path: Path) -> None:
        """Open it, and create it with the right time if there is none."""
        if not path.exists():
            path.write_bytes(_FORM.pack(0.0))
        self.path = path
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FORM.size)

    @property
    def offset_s(self) -> float:
        """The seconds that are added to the time of day."""
        offset: float = _FORM.unpack(self._map[:])[0]
        return offset

    @offset_s.setter
    def offset_s(self, seconds: float) -> None:
        self._map[:] = _FORM.pack(seconds)


def follow(path: Path) -> None:
    """Let this process's time of day be off as the file says: what Django and `time.time` tell."""
    from django.utils import timezone

    clock = Clock(path)
    now, seconds = timezone.now, time.time
    timezone.now = _shifted(now, clock)
    time.time = lambda: seconds() + clock.offset_s


def _shifted(now: Callable[[], datetime], clock: Clock) -> Callable[[], datetime]:
    def shifted() -> datetime:
        return now() + timedelta(seconds=clock.offset_s)

    return shifted
