"""Measure the server beside the limits of this machine, print one table, keep the raw rounds.

Exit status: 0 when everything was measured, whatever the table says of the targets; 1 when something was not.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import measurements, rows, table
from benchmarks.databases import DATABASE_URL, Database, PostgreSQL, SQLite
from benchmarks.flooding.floods import Floods
from benchmarks.limits import agent_server
from benchmarks.measured.lists import FEW, MANY, Lists
from benchmarks.report import Report
from benchmarks.rounds import FAILURES, Rounds
from benchmarks.workbench import FULL, QUICK, Plan, Workbench

ROOT = Path(__file__).resolve().parent
ENGINES = {"postgresql": ("postgresql",), "sqlite": ("sqlite",), "both": ("postgresql", "sqlite")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    asked = _parser().parse_args(arguments)
    chosen = rows.chosen(asked.only, quick=asked.quick)
    unknown = [name for name in asked.only or () if not rows.chosen([name])]
    if asked.list or unknown:
        print("\n".join(row.title for row in (rows.ROWS if unknown else chosen)))
        return _refuse(f"No row is called {' or '.join(map(repr, unknown))}.") if unknown else 0
    if not (chosen := _possible(chosen)):
        return 0
    # Whoever ends this ends its servers too, and leaves no database behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = QUICK if asked.quick else FULL
    plan = replace(plan, rounds=asked.rounds or plan.rounds)
    started_at = datetime.now(UTC)
    report = Report(asked.output or _place(asked, started_at), started_at, chosen)
    for name in ENGINES[asked.engine]:
        try:
            _measure(name, plan, chosen, report)
        except FAILURES as error:
            report.fail(name, str(error))
            _say(f"{name}: nothing could be measured: {error}")
    print(table.markdown(report.findings()))
    _say(f"raw rounds in {report.path}")
    return int(report.failed())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=ENGINES, default="both")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, for trying")
    parser.add_argument("--rounds", type=int, help="at most this many rounds an engine (5, with --quick 2)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="rows with this in their title; may be repeated",
    )
    parser.add_argument("--list", action="store_true", help="print the titles of the rows and end")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the raw rounds are written")
    return parser


def _possible(chosen: list[rows.Row]) -> list[rows.Row]:
    """Return the rows that can be measured here, and say why the others cannot."""
    others = [row for row in chosen if not row.needs_agent_server]
    if len(others) == len(chosen):
        return chosen
    try:
        installed = agent_server.version(agent_server.python())
    except agent_server.NoAgentServer as error:
        _say(f"rows beside an agent server are left out: {error}")
        return others
    _say(f"the agent server is {agent_server.PACKAGE} {installed}")
    return chosen


def _place(asked: argparse.Namespace, started_at: datetime) -> Path:
    """Return where the rounds are kept: only full runs of all rows are results of the project."""
    if asked.quick or asked.only or asked.engine != "both":
        return ROOT.parent / "build" / "benchmarks" / f"{started_at:%Y-%m-%dT%H%M%S}.json"
    return ROOT / "results" / f"{started_at:%Y-%m-%d}.json"


def _measure(name: str, plan: Plan, chosen: Sequence[rows.Row], report: Report) -> None:
    """Measure the rows on one engine, and write each round as it ends. Raise one of FAILURES."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="convserver-benchmark-")))
        database = stack.enter_context(_database(name, directory))
        listed = {count: stack.enter_context(_database(name, directory)) for count in (FEW, MANY)}
        flooded = Floods(stack.enter_context(_database(name, directory)), directory)
        bench = Workbench(database, Lists(listed, directory), flooded, plan, directory)
        possible = [row for row in chosen if row.only_on in (None, database.engine)]
        if len(possible) < len(chosen):
            _say(f"{database.engine}: {len(chosen) - len(possible)} rows are about the other engine only")
        wanted = measurements.wanted([key for row in possible for key in row.keys], database.engine)
        rounds = Rounds(bench, wanted, _say)
        report.begin(name, database, rounds.samples)
        _say(f"{database.engine}: filling conversations")
        bench.make_template()
        rounds.prepare()
        for number in range(plan.rounds):
            began = time.monotonic()
            if not rounds.run(number):
                _say(f"{database.engine}: no time for round {number + 1} of {plan.rounds}")
                break
            report.write()
            _say(f"{database.engine}: round {number + 1} of {plan.rounds}, {time.monotonic() - began:.0f} s")


@contextmanager
def _database(name: str, directory: Path) -> Iterator[Database]:
    database = PostgreSQL(DATABASE_URL) if name == "postgresql" else SQLite(directory)
    try:
        yield database
    finally:
        database.remove()


def _refuse(sentence: str) -> int:
    _say(sentence)
    return 2


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
