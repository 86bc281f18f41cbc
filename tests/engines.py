"""Run the suite on SQLite and, when both can be reached, at the same time on PostgreSQL and Redis.

On each, several runs at a time take the files of a whole suite one after another: while one waits, another
works. Of a whole suite, failed tests run again at the end (`tests.support.runner.second_tries`).

Run as `python -m tests.engines [pytest arguments]`. TEST_DATABASE_URL and TEST_REDIS_URL say where to
look; CONVSERVER_REQUIRE_ENGINES=all makes a missing engine a failure, and so a missing package from npm
(`tests.support.wires.npm`), which tests drive with node where they can, a missing Chromium, in which they
look at the pages, and a bubblewrap that is missing or does not work.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn
from urllib.parse import urlsplit

import psycopg
import redis
from psycopg import sql

from tests.support.people import chromium
from tests.support.runner import migrated, second_tries
from tests.support.runner.file_queue import RUNS, SERVERS, SQLITE, FileQueue, in_order
from tests.support.runner.second_tries import Outcomes
from tests.support.runner.suite_run import Outcome, SuiteRun, ended_together, started
from tests.support.servers.ports import PORTS
from tests.support.wires.npm import MCP_CONFORMANCE, SOCKET_IO_CLIENT

DATABASE_URL = os.environ.get("TEST_DATABASE_URL") or "postgresql://postgres@127.0.0.1:5432/postgres"
REDIS_URL = os.environ.get("TEST_REDIS_URL") or "redis://127.0.0.1:6379/0"
CONNECT_TIMEOUT_S = 2

MEMORY = "/dev/shm"
MEMORY_MIN_BYTES = 1024 * 1024 * 1024

SLOWEST = "The slowest files, in seconds"
SHOWN_FILES = 20
"""So many files are shown at the end, those that take the longest."""
SKIPPED = "Skipped tests, and why"
FLAKY = "Flaky tests, and how both tries went"
FAILED = "Failed tests, and what went wrong"
"""Shown last, so that the end of an output says it."""

CLUSTER = f"{SERVERS}, two servers"
"""What the engines are called where servers share them."""
CLUSTER_OPTIONS = ("--two-servers",)
ON_TWO_SERVERS = (
    "tests/doors/v1/test_v1_sdk_traffic.py",
    *(
        f"tests/processes/test_v0_clients.py::{name}"
        for name in (
            "test_a_client_that_leaves_resumes_where_it_was",
            "test_a_client_that_drops_comes_back_by_itself_and_misses_nothing",
            "test_four_clients_that_join_a_busy_conversation_miss_nothing_and_get_nothing_twice",
        )
    ),
    *(
        f"tests/browser/test_streaming.py::{name}"
        for name in (
            "test_an_answer_grows_and_then_stands_where_it_grew",
            "test_a_page_reloaded_in_mid_answer_shows_all_of_it",
            "test_a_page_opened_in_mid_answer_says_that_the_agent_works",
        )
    ),
    *(
        f"tests/browser/test_approval.py::{name}"
        for name in (
            "test_an_approval_outlives_a_reload_and_is_asked_for_once",
            "test_the_agent_is_paused_and_let_go_on_by_one_key",
            "test_the_agent_is_stopped_by_one_key",
        )
    ),
)
"""What a whole run tries on a cluster as well: recorded and scripted clients of both wires, and the page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one run has to do."""

    engines: str
    name: str
    """What it is called above its output."""
    number: int
    """Its place among all parts, from 0; the output of the first is shown as it comes."""
    queue: FileQueue | None
    """Where it takes its files from, beside other runs; None if arguments name them."""
    arguments: Sequence[str] = ()
    """Its own, before those of the command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How the suite went on one set of engines."""

    engines: str
    verdict: str
    is_failure: bool

    def __str__(self) -> str:
        return f"{self.engines} {self.verdict}"


def main(arguments: Sequence[str]) -> int:
    """Run pytest with the arguments on each set of engines; return the exit code."""
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    try:
        problem = postgresql_problem() or redis_problem()
        outcomes: Outcomes = _run(arguments, [SQLITE] if problem else [SQLITE, SERVERS])
        if is_whole(arguments):
            outcomes = second_tries.after(outcomes, lambda engines, test: _again(engines, test, arguments))
        is_too_flaky = second_tries.are_too_many_flaky(outcomes)
        results = [_result(engines, found, is_too_flaky) for engines, found in outcomes.items()]
        missing = (
            (SERVERS, problem),
            (SOCKET_IO_CLIENT.name, SOCKET_IO_CLIENT.problem()),
            # Debian 12 has an older node than it needs.
            (MCP_CONFORMANCE.name, None if MCP_CONFORMANCE.node_problem() else MCP_CONFORMANCE.problem()),
            ("Chromium", chromium.problem()),
        )
        results += [_missing(what, problem) for what, problem in missing if problem]
    except KeyboardInterrupt:
        print("\nEngines: interrupted.")
        return 128 + signal.SIGINT
    _show_slowest(outcomes)
    _show_skipped(outcomes)
    _show_flaky(outcomes)
    if is_too_flaky:
        print(f"More than {second_tries.FLAKY_AT_MOST} tests are flaky: the run fails.")
    _show_failed(outcomes)
    print()
    for result in results:
        print(result)
    print(f"Engines: {', '.join(map(str, results))}.")
    return int(any(result.is_failure for result in results))


def postgresql_problem() -> str | None:
    """Say in a few words why PostgreSQL cannot be reached; None when it can."""
    try:
        psycopg.connect(DATABASE_URL, connect_timeout=CONNECT_TIMEOUT_S).close()
    except psycopg.Error as error:
        return f"PostgreSQL at {_place(DATABASE_URL)}: {_reason(error)}"
    return None


def redis_problem() -> str | None:
    """Say in a few words why Redis cannot be reached; None when it can."""
    try:
        with redis.Redis.from_url(
            REDIS_URL, socket_connect_timeout=CONNECT_TIMEOUT_S, socket_timeout=CONNECT_TIMEOUT_S
        ) as client:
            client.ping()
    except redis.RedisError as error:
        return f"Redis at {_place(REDIS_URL)}: {_reason(error)}"
    return None


def is_whole(arguments: Sequence[str]) -> bool:
    """Say whether nobody has chosen the tests to run."""
    return not any(
        argument.startswith(("-k", "-m")) or Path(argument.partition("::")[0]).exists()
        for argument in arguments
    )


def _run(arguments: Sequence[str], all_engines: Sequence[str]) -> dict[str, list[Outcome]]:
    """Do all parts at the same time, and show their output one after another; return how they went."""
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    with ExitStack() as until_shown:
        queues = until_shown.enter_context(TemporaryDirectory(prefix="convserver-tests-"))
        parts = _parts(all_engines, Path(queues) if is_whole(arguments) else None)
        _head(parts[0].name)
        runs = [until_shown.enter_context(_started(part, arguments)) for part in parts]
        with ended_together(*runs):
            for part, run in zip(parts, runs, strict=True):
                if part.number:
                    _head(part.name)
                outcomes[part.engines].append(run.finish())
    return outcomes


def _parts(all_engines: Sequence[str], queues: Path | None) -> list[Part]:
    """Divide the suite: by engines and, if it is whole, into several runs that have a queue of its files."""
    parts: list[Part] = []
    for engines in all_engines:
        queue = FileQueue(queues / str(len(parts))) if queues else None
        if queue is not None:
            queue.fill(in_order(engines))
        count = RUNS[engines] if queue else 1
        for number in range(1, count + 1):
            name = engines if count == 1 else f"{engines}, part {number} of {count}"
            parts.append(Part(engines=engines, name=name, number=len(parts), queue=queue))
    if queues and SERVERS in all_engines:
        own = [*CLUSTER_OPTIONS, *ON_TWO_SERVERS]
        parts.append(Part(engines=CLUSTER, name=CLUSTER, number=len(parts), queue=None, arguments=own))
    return parts


def _again(engines: str, test: str, arguments: Sequence[str]) -> Outcome:
    """Run one test by itself, with the options of its part; return how it went."""
    own = [*(CLUSTER_OPTIONS if engines == CLUSTER else ()), test]
    part = Part(engines=engines, name=f"{engines}, second try", number=0, queue=None, arguments=own)
    _head(part.name)
    with _started(part, arguments) as run, ended_together(run):
        return run.finish()


@contextmanager
def _started(part: Part, arguments: Sequence[str]) -> Iterator[SuiteRun]:
    """Start a part on a database of its own, under a name that no other run hears hints of."""
    name = secrets.token_hex(4)
    with TemporaryDirectory(prefix="convserver-tests-", dir=_quick_directory()) as directory:
        variables = {
            "CONVSERVER_TEST_RUN": name,
            "CONVSERVER_TEST_FIRST_PORT": str(PORTS.start + part.number * len(PORTS)),
        }
        if part.engines == SQLITE:
            variables |= {"DATABASE_URL": f"sqlite:///{directory}/convserver.sqlite3"}
        else:
            variables |= {"DATABASE_URL": DATABASE_URL, "REDIS_URL": REDIS_URL}
        options = ["-o", f"cache_dir=.pytest_cache/{part.number}", *part.arguments]
        if part.queue is not None:
            options += part.queue.arguments
            variables |= part.queue.variables
        try:
            with started([*options, *arguments], variables, directory, is_shown=part.number == 0) as run:
                yield run
        finally:
            # A run that was stopped leaves its database behind, and the copy of it.
            if part.engines != SQLITE:
                own = f"test_convserver_{name}"
                for each in (own, migrated.kept(own)):
                    _drop_database(each)


def _quick_directory() -> str | None:
    """Return a directory in memory, where commits wait for no disk, if there is one with room.

    No test cuts the power: what a killed process leaves is there as it is on a disk.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_MIN_BYTES:
        return MEMORY
    return None


def _head(engines: str) -> None:
    print(f"\n{engines}", flush=True)


def _result(engines: str, outcomes: Sequence[Outcome], is_too_flaky: bool) -> Result:
    is_failure = any(outcome.exit_code or (is_too_flaky and outcome.flaky) for outcome in outcomes)
    verdict = "failed" if is_failure else "passed"
    details = ", ".join(_details(outcomes))
    return Result(engines=engines, verdict=f"{verdict} ({details})", is_failure=is_failure)


def _details(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield how many tests ran, failed, were flaky and were skipped, and which runs gave no report."""
    ran, failed, skipped = (
        sum(getattr(outcome, what) for outcome in outcomes) for what in ("ran", "failed", "skipped")
    )
    yield f"{ran} test{'' if ran == 1 else 's'}"
    if failed:
        yield f"{failed} failed"
    if flaky := sum(len(outcome.flaky) for outcome in outcomes):
        yield f"{flaky} flaky"
    if skipped:
        yield f"{skipped} skipped"
    yield from (f"pytest ended with {outcome.exit_code}" for outcome in outcomes if not outcome.is_told)


def _show_slowest(outcomes: Outcomes) -> None:
    """Print the files that took the longest, on all engines together."""
    seconds = {
        engines: sum((Counter(outcome.seconds) for outcome in found), Counter[str]())
        for engines, found in outcomes.items()
    }
    print(f"\n{SLOWEST}")
    for file, taken in sum(seconds.values(), Counter[str]()).most_common(SHOWN_FILES):
        each = ", ".join(f"{engines} {found[file]:.1f}" for engines, found in seconds.items() if found[file])
        print(f"{taken:6.1f}  {file} ({each})")


def _show_skipped(outcomes: Outcomes) -> None:
    """Print why tests were skipped, and how many for each reason."""
    if any(outcome.skipped for found in outcomes.values() for outcome in found):
        print(f"\n{SKIPPED}")
    for engines, found in outcomes.items():
        reasons = sum((Counter(outcome.skipped_for) for outcome in found), Counter[str]())
        for reason, count in reasons.most_common():
            print(f"{count:6}  {engines}: {reason}")


def _show_flaky(outcomes: Outcomes) -> None:
    """Print the name of every flaky test, and how each try went."""
    if any(outcome.flaky for found in outcomes.values() for outcome in found):
        print(f"\n{FLAKY}")
    for engines, found in outcomes.items():
        for outcome in found:
            for test, what in outcome.flaky.items():
                print(f"{engines}: {test}: first {what}; then passed")


def _show_failed(outcomes: Outcomes) -> None:
    """Print the name of every test that failed, and the first line of what went wrong."""
    if any(outcome.failures for found in outcomes.values() for outcome in found):
        print(f"\n{FAILED}")
    for engines, found in outcomes.items():
        for outcome in found:
            for test, what in outcome.failures.items():
                print(f"{engines}: {test}: {what}")


def _missing(engines: str, problem: str) -> Result:
    if os.environ.get("CONVSERVER_REQUIRE_ENGINES") == "all":
        verdict = f"missing, but CONVSERVER_REQUIRE_ENGINES=all asks for them ({problem})"
        return Result(engines=engines, verdict=verdict, is_failure=True)
    return Result(engines=engines, verdict=f"skipped ({problem})", is_failure=False)


def _exit_on_sigterm(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def _drop_database(name: str) -> None:
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    try:
        with psycopg.connect(DATABASE_URL, connect_timeout=CONNECT_TIMEOUT_S, autocommit=True) as connection:
            connection.execute(drop)
    except psycopg.Error as error:
        print(f"The test database {name} may be left behind: {_reason(error)}", file=sys.stderr)


def _place(url: str) -> str:
    """Return host and port, or the path of a socket, without any password."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or parts.path


def _reason(error: Exception) -> str:
    """Return the last clause of the first line: psycopg and redis lead up to it with the address."""
    clause = str(error).strip().partition("\n")[0].rstrip(".")
    for lead in ("failed: ", ". "):
        clause = clause.rpartition(lead)[2]
    return clause


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
