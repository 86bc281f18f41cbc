"""The file that keeps the raw rounds, written anew as each round ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from benchmarks import machine
from benchmarks.databases import Database
from benchmarks.findings import Finding, findings
from benchmarks.rows import Row
from benchmarks.samples import Samples


class Report:
    """What was found on each engine so far."""

    def __init__(self, path: Path, started_at: datetime, chosen: Sequence[Row]) -> None:
        self.path = path
        self._started_at = started_at
        self._rows = chosen
        self._machine = machine.facts()
        self._facts: dict[str, dict[str, str]] = {}
        self._samples: dict[str, Samples] = {}
        self._failures: dict[str, str] = {}

    def begin(self, name: str, database: Database, samples: Samples) -> None:
        """Begin with an engine, whose samples grow from now on."""
        self._facts[name] = {"engine": database.engine, **database.facts()}
        self._samples[name] = samples

    def fail(self, name: str, reason: str) -> None:
        """Keep why nothing more could be measured on an engine."""
        self._failures[name] = reason

    def failed(self) -> bool:
        """Say whether anything could not be measured."""
        return bool(self._failures) or any(samples.failed() for samples in self._samples.values())

    def findings(self) -> list[Finding]:
        """Return what is known of each row, engine by engine."""
        return [
            finding
            for name, samples in self._samples.items()
            for finding in findings(self._facts[name]["engine"], self._rows, samples)
        ]

    def write(self) -> None:
        """Write the file; whoever reads it meanwhile finds a whole one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "started_at": self._started_at.isoformat(timespec="seconds"),
            "machine": self._machine,
            "engines": list(self._facts.values()),
            "failures": self._failures,
            "findings": [asdict(finding) for finding in self.findings()],
            "rounds": {
                self._facts[name]["engine"]: samples.document() for name, samples in self._samples.items()
            },
        }
        written = self.path.with_suffix(".tmp")
        written.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        written.replace(self.path)
