"""Round after round of measurements on one engine; what fails, fails alone.

The first round measures everything, however long that takes; others follow while there is time.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Collection, Sequence

import psycopg

from benchmarks import server
from benchmarks.job import ClientFailed
from benchmarks.limits.engines import LimitFailed
from benchmarks.measurements import Measurement
from benchmarks.quiet import Quiet
from benchmarks.samples import Samples
from benchmarks.workbench import Workbench

FAILURES = (ClientFailed, LimitFailed, server.NotServing, psycopg.Error, subprocess.SubprocessError, OSError)
"""What a measurement may end by."""


class Rounds:
    """The rounds on one engine, and what they found."""

    def __init__(
        self,
        bench: Workbench,
        measurements: Sequence[Measurement],
        say: Callable[[str], None],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now` is a clock, in seconds."""
        self.samples = Samples()
        self._bench = bench
        self._measurements = list(measurements)
        self._say = say
        self._quiet = Quiet(bench.plan.patience_s)
        self._now = now
        self._ends_at = now() + bench.plan.budget_s
        self._next_s = 0.0
        """How long the next round is expected to take."""

    def prepare(self) -> None:
        """Make what the measurements need; one whose preparation fails is measured in no round."""
        reasons = {
            prepare: self._reason(lambda prepare=prepare: prepare(self._bench))  # type: ignore[misc]
            for prepare in dict.fromkeys(each.prepare for each in self._measurements if each.prepare)
        }
        for measurement in list(self._measurements):
            if measurement.prepare and (reason := reasons[measurement.prepare]):
                self._fail(measurement.keys, reason)
                self._measurements.remove(measurement)

    def run(self, number: int) -> bool:
        """Measure everything once; False without a measurement if there is no time for one more round."""
        if number and self._now() + self._next_s > self._ends_at:
            return False
        self.samples.rounds = number + 1
        self._next_s = 0.0
        with self._bench.round(number):
            for measurement in self._measurements:
                began = self._now()
                self._measure(measurement, number)
                self._next_s += 0.0 if measurement.is_steady else self._now() - began
        self._measurements = [each for each in self._measurements if not each.is_steady]
        return True

    def _measure(self, measurement: Measurement, number: int) -> None:
        busy = self._quiet.wait()
        missing = set(measurement.keys)

        def measure() -> None:
            for key, value in measurement.measure(self._bench):
                missing.discard(key)
                self.samples.keep(number, key, value, busy=busy)

        if reason := self._reason(measure):
            self._fail(missing, reason)

    def _fail(self, keys: Collection[str], reason: str) -> None:
        self.samples.fail(keys, reason)
        self._say(f"not measured: {', '.join(sorted(keys))}: {reason}")

    def _reason(self, work: Callable[[], None]) -> str:
        """Do the work; return why it failed, or nothing."""
        try:
            work()
        except FAILURES as error:
            return "\n".join([str(error), *getattr(error, "__notes__", [])])
        return ""
