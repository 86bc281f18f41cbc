"""Break servers in every way that the suite knows while clients use them, and check every answer.

Exit status: 0 if every promise was kept, 1 if not, 2 if something that the suite needs is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple

from faults.instances import Missing
from faults.suite import catalogue_tests, page, planted
from faults.suite.installations import Installation, OnPostgreSQL, OnSQLite
from faults.suite.planted import Caught, all_faults, started
from faults.suite.results import Results
from faults.suite.rounds import Result, Rounds

ENGINES: dict[str, type[Installation]] = {"sqlite": OnSQLite, "postgresql": OnPostgreSQL}
AT_ONCE = 2
"""So many faults of a kind are in one round."""


class Size(NamedTuple):
    """How much is done on each engine: until the time is over, or the faults are injected; at least one."""

    seconds: float
    faults: int
    is_whole: bool
    """Whether every kind of fault comes at least once, however long that takes."""


QUICK = Size(seconds=12.0, faults=1_000_000, is_whole=False)
NORMAL = Size(seconds=110.0, faults=1_000_000, is_whole=True)
LONG = Size(seconds=3_400.0, faults=510, is_whole=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for."""
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {asked.seed}", flush=True)
    try:
        if asked.tests:
            return _tests(asked)
        return _planted(asked) if asked.planted else _rounds(asked)
    except Missing as missing:
        print(f"The suite cannot run: {missing}")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m faults.suite", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="what breaks, and when")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--quick", action="store_true", help="some kinds of fault, in less than a minute")
    what.add_argument("--long", action="store_true", help="at least 1,000 faults, in at most two hours")
    what.add_argument("--planted", action="store_true", help="plant eight bugs, and look who notices")
    what.add_argument("--tests", action="store_true", help="run the tests that the catalogue names")
    parser.add_argument("--only", default="", help="kinds of fault, or bugs, whose name contains this")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="this one alone")
    parser.add_argument("--no-page", action="store_true", help="leave docs/faults.md as it is")
    return parser


def _rounds(asked: argparse.Namespace) -> int:
    size = QUICK if asked.quick else LONG if asked.long else NORMAL
    results: dict[tuple[str, str], Result] = {}
    began, rng = time.monotonic(), random.Random(asked.seed)
    for name in asked.engine or ENGINES:
        place = Path(mkdtemp(prefix="convserver-faults-"))
        found = asyncio.run(_on(ENGINES[name], place, size, random.Random(rng.random()), asked.only))
        results.update({(ENGINES[name].engine, fault): result for fault, result in found.items()})
        if all(result.is_right for result in found.values()):
            rmtree(place)
        else:
            print(f"Logs and histories are in {place}.")
    if not (asked.quick or asked.no_page or asked.only or asked.engine):
        kept = Results.read()
        kept.take_rounds(results, seed=asked.seed, seconds=time.monotonic() - began)
        _keep(kept)
    injected, acknowledged = (
        sum(getattr(result, name) for result in results.values()) for name in ("injected", "acknowledged")
    )
    wrong = [key for key, result in results.items() if not result.is_right]
    print(
        f"\n{injected:,} faults, {acknowledged:,} acknowledgements, wrong with {len(wrong)} kinds of fault."
    )
    return int(bool(wrong))


async def _on(
    engine: type[Installation], place: Path, size: Size, rng: random.Random, only: str
) -> dict[str, Result]:
    """Break one installation in one way after the other; return what each has shown."""
    faults = [fault for fault in all_faults(engine) if only in fault.name]
    found = {fault.name: Result() for fault in faults}
    print(
        f"\n{engine.engine}\n\n| broken | times | acknowledged | lost | doubled | breaches | until service |"
    )
    print(f"|---|{'---:|' * 6}", flush=True)
    began = time.monotonic()
    async with started(engine, place) as installation:
        rounds, is_first = Rounds(installation, rng), True
        while faults:
            for fault in rng.sample(faults, len(faults)):
                injected = sum(result.injected for result in found.values())
                is_over = time.monotonic() - began > size.seconds and injected > 0  # however slow the start
                is_enough = injected >= size.faults
                if (is_over or is_enough) and not (is_first and size.is_whole):
                    return {name: result for name, result in found.items() if result.injected}
                result = await rounds.run(fault, 1 if is_first else AT_ONCE)
                found[fault.name].add(result)
                _print(fault.name, result)
            is_first = False
    return found


def _print(name: str, result: Result) -> None:
    wait = "never" if not result.waits_s else f"{max(result.waits_s):.2f} s"
    print(
        f"| {name} | {result.injected} | {result.acknowledged} | {result.lost} | {result.doubled} "
        f"| {result.broken.total()} | {wait} |",
        flush=True,
    )
    for sentence in result.sentences:
        print(f"- {sentence}", flush=True)


def _planted(asked: argparse.Namespace) -> int:
    print("\n| bug | shown by | caught | rounds |\n|---|---|---|---:|", flush=True)
    found: list[Caught] = []
    for each in planted.caught(random.Random(asked.seed), asked.only):
        found.append(each)
        is_caught = f"yes, {each.proof.shown_by}" if each.is_caught else "no"
        print(f"| {each.proof.bug} | {each.proof.fault} | {is_caught} | {each.rounds} |", flush=True)
    if not (asked.no_page or asked.only):
        kept = Results.read()
        kept.take_planted(found, seed=asked.seed)
        _keep(kept)
    caught = sum(each.is_caught for each in found)
    print(f"\n{caught} of {len(found)} caught.")
    return int(caught < len(found))


def _tests(asked: argparse.Namespace) -> int:
    outcomes = catalogue_tests.run()
    failed = sorted(test for test, outcome in outcomes.items() if outcome != "passed")
    for test in failed:
        print(f"{outcomes[test]}: {test}")
    if not asked.no_page:
        kept = Results.read()
        kept.take_tests(outcomes)
        _keep(kept)
    print(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} tests of the catalogue passed.")
    return int(bool(failed))


def _keep(results: Results) -> None:
    results.write()
    page.write(results)
    print(f"\nWritten to {page.PAGE}.")


if __name__ == "__main__":
    sys.exit(main())
