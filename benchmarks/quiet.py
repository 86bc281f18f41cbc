"""Waiting for a quiet machine, within a bound: what others use is missing from what is measured."""

from __future__ import annotations

import time

import psutil

LOOK_S = 0.1
WAIT_S = 0.4
QUIET_PERCENT = 15.0


class Quiet:
    """Looks at what others use of the machine, and waits while that is much and patience is left."""

    def __init__(self, patience_s: float) -> None:
        self._left_s = patience_s

    def wait(self) -> float:
        """Return the percent of all cores in use, once that is little or the patience is used up."""
        while (busy := psutil.cpu_percent(interval=LOOK_S)) > QUIET_PERCENT and self._left_s > 0:
            time.sleep(WAIT_S)
            self._left_s -= LOOK_S + WAIT_S
        return busy
