"""Measure the server beside the limits of this machine, print one table, keep the raw rounds.

Exit status: 0 when everything was measured, whatever the table says of the targets; 1 when something was not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from benchmarks import machine, rows, server, table
from benchmarks.databases import Database, PostgreSQL, SQLite
from benchmarks.job import ClientFailed
from benchmarks.limits import LimitFailed
from benchmarks.lists import FEW, MANY, Lists
from benchmarks.rounds import FULL, QUICK, Plan, Rounds

RESULTS = Path(__file__).resolve().parent / "results"
DATABASE_URL = os.environ.get("TEST_DATABASE_URL") or "postgresql://postgres@127.0.0.1:5432/postgres"
ENGINES = {"postgresql": ("postgresql",), "sqlite": ("sqlite",), "both": ("postgresql", "sqlite")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=ENGINES, default="both")
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter rounds, for trying; writes no file"
    )
    parser.add_argument("--rounds", type=int, help="how many rounds an engine (5, with --quick 2)")
    chosen = parser.parse_args(arguments)
    # Whoever ends this ends its servers too, and leaves no database behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = QUICK if chosen.quick else FULL
    count = chosen.rounds or plan.rounds
    started_at = datetime.now(UTC)
    try:
        measured = {name: _measured(name, plan, count) for name in ENGINES[chosen.engine]}
    except (ClientFailed, LimitFailed, server.NotServing, psycopg.Error, subprocess.SubprocessError) as error:
        notes = "\n".join(getattr(error, "__notes__", []))
        sys.stderr.write(f"benchmarks: a measurement failed: {error}\n{notes}\n")
        return 1
    findings = [
        finding for facts, rounds in measured.values() for finding in rows.findings(facts["engine"], rounds)
    ]
    print(table.markdown(findings))
    if not chosen.quick:
        _write(started_at, findings, measured)
    return 0


def _measured(name: str, plan: Plan, count: int) -> tuple[dict[str, str], dict[str, list[float]]]:
    """Return the facts of the engine and the samples of its rounds."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="convserver-benchmark-")))
        database = stack.enter_context(_database(name, directory))
        listed = {count: stack.enter_context(_database(name, directory)) for count in (FEW, MANY)}
        rounds = Rounds(database, Lists(listed, directory), plan, directory)
        _say(f"{database.engine}: filling conversations")
        rounds.prepare()
        for number in range(count):
            began = time.monotonic()
            rounds.run(number)
            _say(f"{database.engine}: round {number + 1} of {count}, {time.monotonic() - began:.0f} s")
        return {"engine": database.engine, **database.facts()}, dict(rounds.samples)


@contextmanager
def _database(name: str, directory: Path) -> Iterator[Database]:
    database = PostgreSQL(DATABASE_URL) if name == "postgresql" else SQLite(directory)
    try:
        yield database
    finally:
        database.remove()


def _write(
    started_at: datetime,
    findings: Sequence[rows.Finding],
    measured: dict[str, tuple[dict[str, str], dict[str, list[float]]]],
) -> None:
    document = {
        "started_at": started_at.isoformat(timespec="seconds"),
        "machine": machine.facts(),
        "engines": [facts for facts, _ in measured.values()],
        "findings": [asdict(finding) for finding in findings],
        "rounds": {facts["engine"]: samples for facts, samples in measured.values()},
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{started_at:%Y-%m-%d}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    _say(f"raw rounds in {path}")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
