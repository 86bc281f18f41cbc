"""One round: clients begin, something breaks, they go on, and then every answer is checked."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.checker import history as histories
from faults.checker.history import HistoryFile
from faults.checker.judge import checked
from faults.cluster.judge import wrong_runs
from faults.suite import stored
from faults.suite.fault import Fault
from faults.suite.installations import Installation
from faults.suite.load import Load

BEFORE_S, AFTER_S = 0.3, 0.3
SERVED_WAIT_S = 300.0
"""A client that is not served so long after a fault was mended is not served at all."""
SENTENCES_MAX = 10
IN_STORE = "wrong in the store"


@dataclass(slots=True)
class Result:
    """What rounds with one kind of fault have shown."""

    injected: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    waits_s: list[float] = field(default_factory=list)
    """By fault: the time until service."""
    broken: Counter[str] = field(default_factory=Counter)
    """How often each rule was broken."""
    sentences: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whether every promise was kept."""
        return not self.broken

    def add(self, other: Result) -> None:
        """Take the result of one more round."""
        self.injected += other.injected
        self.acknowledged += other.acknowledged
        self.lost += other.lost
        self.doubled += other.doubled
        self.waits_s += other.waits_s
        self.broken += other.broken
        self.sentences += other.sentences[: SENTENCES_MAX - len(self.sentences)]


class Rounds:
    """The rounds on one installation, which runs."""

    def __init__(self, installation: Installation, rng: random.Random) -> None:
        self.installation = installation
        self.rng = rng
        self._number = 0

    async def run(self, fault: Fault[Any], times: int) -> Result:
        """Run one round with so many faults of a kind, and return what it has shown."""
        self._number += 1
        result, path = Result(), self.installation.place / f"history-{self._number}"
        rng = random.Random(self.rng.random())
        with HistoryFile(path) as history:
            load = Load(
                self.installation.client_ports,
                history,
                rng,
                secret=self.installation.secret,
                runs_agents=self.installation.runs_agents,
            )
            try:
                await load.begin()
                await load.served_again(SERVED_WAIT_S)
                for _ in range(times):
                    await asyncio.sleep(rng.random() * BEFORE_S)
                    await self._break(fault, load, result, rng)
                await asyncio.sleep(AFTER_S)
            finally:
                await load.end()
        self._judge(load, path, result)
        if result.is_right:
            path.unlink()
        return result

    async def _break(self, fault: Fault[Any], load: Load, result: Result, rng: random.Random) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await fault.inject(self.installation, rng)
        mended = loop.time()
        result.injected += 1
        waited = await load.served_again(SERVED_WAIT_S)
        if waited is None:
            result.broken["no service"] += 1
            result.sentences.append(f"nobody was served within {SERVED_WAIT_S:g} s")
        else:
            result.waits_s.append(waited + (mended - began if fault.counts_from_begin else 0.0))

    def _judge(self, load: Load, path: Path, result: Result) -> None:
        store = self.installation.store(load.stage.prefix, load.stage.creations)
        findings = checked(histories.read(path), list(stored.records(store)))
        result.acknowledged = load.stage.service.acknowledged
        result.lost, result.doubled = findings.lost, findings.doubled
        result.broken.update({str(rule): count for rule, count in findings.broken.items()})
        result.sentences += [f"{each.rule}: {each.talk}: {each.sentence}" for each in findings.violations]
        wrong = [*stored.faults_in(store, secret=self.installation.secret)]
        for sentence in (*wrong, *wrong_runs(self.installation.runs, Counter())):
            result.broken[IN_STORE] += 1
            result.sentences.append(sentence)
