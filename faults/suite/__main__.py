"""Break servers in every way that the suite knows while clients use them, and check every answer.

Exit status: 0 if every promise was kept, 1 if not, 2 if something that the suite needs is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple

from faults.instances import Missing
from faults.power.installations import OF_ENGINE
from faults.suite import catalogue_tests, page, planted
from faults.suite.installations import Installation, OnPostgreSQL, OnSQLite
from faults.suite.planted import Caught, all_kinds, started, tried
from faults.suite.results import FILE, Results
from faults.suite.rounds import Result, Rounds
from faults.wal_reset import NAME, Tried, tried_with_each

ENGINES: dict[str, type[Installation]] = {"sqlite": OnSQLite, "postgresql": OnPostgreSQL}
AT_ONCE = 2
"""So many faults of a kind are in one round."""


class Size(NamedTuple):
    """How much is done on each engine: until the time is over, or the faults are injected; at least one."""

    seconds: float
    faults: int
    is_whole: bool
    """Whether every kind of fault comes at least once, however long that takes."""
    power_cuts: int
    """How often the power is cut afterwards."""
    races: int
    """How often a checkpoint of SQLite meets a commit."""


QUICK = Size(seconds=12.0, faults=1_000_000, is_whole=False, power_cuts=1, races=1_000)
NORMAL = Size(seconds=90.0, faults=1_000_000, is_whole=True, power_cuts=3, races=20_000)
LONG = Size(seconds=5_400.0, faults=660, is_whole=True, power_cuts=100, races=1_000_000)
"""Both engines at the same time: most of a round is waiting."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for."""
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    print(f"seed {asked.seed}", flush=True)
    try:
        if asked.tests:
            return _tests(asked)
        if asked.planted:
            return _planted(asked)
        return _engines_at_once(asked) if asked.long and asked.engine is None else _rounds(asked)
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
    what.add_argument("--long", action="store_true", help="at least 1,500 faults, in at most two hours")
    what.add_argument("--planted", action="store_true", help="plant bugs, and look whether each is noticed")
    what.add_argument("--tests", action="store_true", help="run the tests that the catalogue names")
    parser.add_argument("--only", default="", help="kinds of fault, or bugs, whose name contains this")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="this one alone")
    parser.add_argument("--seconds", type=float, help="so long on each engine, at most")
    parser.add_argument("--no-page", action="store_true", help="leave docs/faults.md as it is")
    return parser


def _engines_at_once(asked: argparse.Namespace) -> int:
    """Break an installation of each engine, each in a process of its own; return the worse status."""
    own = ["--long", f"--seed={asked.seed}", f"--only={asked.only}", *["--no-page"] * asked.no_page]
    own += [f"--seconds={asked.seconds}"] if asked.seconds else []
    commands = [[sys.executable, "-m", "faults.suite", *own, f"--engine={name}"] for name in ENGINES]
    processes = [subprocess.Popen(command) for command in commands]
    try:
        # Of a process that a signal ended, the status is below 0.
        return max(abs(process.wait()) for process in processes)
    finally:
        for process in processes:
            process.terminate()


def _rounds(asked: argparse.Namespace) -> int:
    size = QUICK if asked.quick else LONG if asked.long else NORMAL
    size = size._replace(seconds=asked.seconds or size.seconds)
    is_kept = not (asked.quick or asked.no_page or asked.only)
    rng = random.Random(asked.seed)
    results: list[Result] = []
    races = _raced(size, is_kept) if "sqlite" in (asked.engine or ENGINES) and asked.only in NAME else []
    for name in asked.engine or ENGINES:
        place = Path(mkdtemp(prefix="convserver-faults-"))
        place.chmod(0o755)  # PostgreSQL runs as somebody else
        chance = random.Random(rng.random())
        is_right = True
        for engine in (ENGINES[name], OF_ENGINE[ENGINES[name]]):
            began = time.monotonic()
            found = _broken(engine, place / engine.__name__, size, chance, asked.only)
            is_right &= all(result.is_right for result in found.values())
            if is_kept and found:
                seconds = time.monotonic() - began
                with _changed_results() as kept:
                    kept.take_rounds(engine.engine, found, seed=asked.seed, seconds=seconds)
            results += found.values()
        if is_right:
            rmtree(place)
        else:
            print(f"Logs and histories are in {place}.")
    injected, acknowledged = (
        sum(getattr(result, name) for result in results) for name in ("injected", "acknowledged")
    )
    wrong = sum(not result.is_right for result in results) + sum(race.lost > 0 for race in races[:1])
    print(f"\n{injected:,} faults, {acknowledged:,} acknowledgements, wrong with {wrong} kinds of fault.")
    return int(wrong > 0)


def _raced(size: Size, is_kept: bool) -> list[Tried]:
    """Race checkpoints of SQLite against commits; return the results, the library of convserver first."""
    found = tried_with_each(size.races)
    for race in found:
        print(f"{NAME}: SQLite {race.version}, {race.tries:,} tries, {race.lost} commits lost", flush=True)
    if is_kept:
        with _changed_results() as kept:
            kept.take_races(found)
    return found


def _broken(
    engine: type[Installation], place: Path, size: Size, rng: random.Random, only: str
) -> dict[str, Result]:
    """Break an installation; return what each fault has shown, nothing where power cannot be cut."""
    if engine not in OF_ENGINE.values():
        return asyncio.run(_on(engine, place, size, rng, only))
    cuts = size._replace(faults=size.power_cuts)
    try:
        return asyncio.run(_on(engine, place, cuts, rng, only))
    except Missing as missing:
        print(missing)
        return {}


async def _on(
    engine: type[Installation], place: Path, size: Size, rng: random.Random, only: str
) -> dict[str, Result]:
    """Break one installation in one way after the other; return what each has shown."""
    kinds = [kind for kind in all_kinds(engine) if only in kind.name]
    if not kinds:
        return {}
    await asyncio.to_thread(place.mkdir)
    found = {kind.name: Result() for kind in kinds}
    print("\n| engine | broken | times | acknowledged | lost | doubled | breaches | until service |")
    print(f"|---|---|{'---:|' * 6}", flush=True)
    began = time.monotonic()
    async with started(engine, place) as installation:
        rounds, is_first = Rounds(installation, rng), True
        while True:
            for kind in rng.sample(kinds, len(kinds)):
                injected = sum(result.injected for result in found.values())
                is_over = time.monotonic() - began > size.seconds and injected > 0  # however slow the start
                is_enough = injected >= size.faults
                if (is_over or is_enough) and not (is_first and size.is_whole):
                    return {name: result for name, result in found.items() if result.injected}
                result = await tried(kind, rounds, 1 if is_first else AT_ONCE)
                found[kind.name].add(result)
                _print(engine.engine, kind.name, result)
            is_first = False


def _print(engine: str, name: str, result: Result) -> None:
    wait = f"{max(result.waits_s):.2f} s" if result.waits_s else "never" if result.broken else "-"
    print(
        f"| {engine} | {name} | {result.injected} | {result.acknowledged} | {result.lost} | {result.doubled} "
        f"| {result.broken.total()} | {wait} |",
        flush=True,
    )
    for sentence in result.sentences:
        print(f"- {engine}, {name}: {sentence}", flush=True)


def _planted(asked: argparse.Namespace) -> int:
    print("\n| bug | shown by | caught | rounds |\n|---|---|---|---:|", flush=True)
    found: list[Caught] = []
    for each in planted.caught(random.Random(asked.seed), asked.only):
        found.append(each)
        is_caught = f"yes, {each.proof.shown_by}" if each.is_caught else "no"
        print(f"| {each.proof.bug} | {each.proof.fault} | {is_caught} | {each.rounds} |", flush=True)
    if not (asked.no_page or asked.only):
        with _changed_results() as kept:
            kept.take_planted(found, seed=asked.seed)
    caught = sum(each.is_caught for each in found)
    print(f"\n{caught} of {len(found)} caught.")
    return int(caught < len(found))


def _tests(asked: argparse.Namespace) -> int:
    outcomes = catalogue_tests.run()
    failed = sorted(test for test, outcome in outcomes.items() if outcome != "passed")
    for test in failed:
        print(f"{outcomes[test]}: {test}")
    if not asked.no_page:
        with _changed_results() as kept:
            kept.take_tests(outcomes)
    print(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} tests of the catalogue passed.")
    return int(bool(failed))


@contextmanager
def _changed_results() -> Iterator[Results]:
    """Let the results be changed, by one process at a time, and write them and their page."""
    with FILE.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = Results.read()
        yield kept
        kept.write()
        page.write(kept)
    print(f"\nWritten to {page.PAGE}.")


if __name__ == "__main__":
    sys.exit(main())
