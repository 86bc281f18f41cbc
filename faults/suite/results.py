"""The last results of the suite, kept as a file, from which its page is made."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from faults.programs import ROOT
from faults.suite.planted import Caught
from faults.suite.rounds import Result
from faults.wal_reset import Tried

FILE = ROOT / "faults" / "results.json"


@dataclass(slots=True)
class Results:
    """What was found last: by the rounds, by planted bugs, and by the tests of the catalogue."""

    rounds: dict[str, Any] = field(default_factory=dict)
    """By the name of the installation: that of its engine, and of its disk if that one forgets."""
    planted: dict[str, Any] = field(default_factory=dict)
    tests: dict[str, Any] = field(default_factory=dict)
    races: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = FILE) -> Results:
        """Return what a file holds; nothing if there is none."""
        text = path.read_text() if path.exists() else ""
        return cls(**json.loads(text)) if text else cls()

    def write(self, path: Path = FILE) -> None:
        """Keep it."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def take_rounds(
        self, installation: str, results: dict[str, Result], *, seed: int, seconds: float
    ) -> None:
        """Take the result of each fault."""
        rows = [
            {
                "fault": fault,
                "injected": result.injected,
                "acknowledged": result.acknowledged,
                "lost": result.lost,
                "doubled": result.doubled,
                "broken": dict(result.broken),
                "median_s": median(result.waits_s) if result.waits_s else None,
                "worst_s": max(result.waits_s, default=None),
            }
            for fault, result in results.items()
        ]
        self.rounds[installation] = {**_made_now(), "seed": seed, "seconds": round(seconds), "rows": rows}

    def take_races(self, found: list[Tried]) -> None:
        """Take what became of commits that a checkpoint met, by the library."""
        self.races = {**_made_now(), "rows": [asdict(each) for each in found]}

    def take_planted(self, found: list[Caught], *, seed: int) -> None:
        """Take what became of the planted bugs."""
        rows = [
            {
                "bug": each.proof.bug,
                "engine": each.proof.engine.engine,
                "fault": each.proof.fault,
                "shown_by": str(each.proof.shown_by),
                "is_caught": each.is_caught,
                "rounds": each.rounds,
            }
            for each in found
        ]
        self.planted = {**_made_now(), "seed": seed, "rows": rows}

    def take_tests(self, outcomes: dict[str, str]) -> None:
        """Take the outcome of each test of the catalogue."""
        self.tests = {**_made_now(), "outcomes": outcomes}


def _made_now() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "processors": os.cpu_count(),
    }


def _commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    return described.stdout.strip() or "unknown"
