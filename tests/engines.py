"""Run the suite on SQLite and, when both can be reached, at the same time on PostgreSQL and Redis.

Run as `python -m tests.engines [pytest arguments]`. TEST_DATABASE_URL and TEST_REDIS_URL say where to
look; CONVSERVER_REQUIRE_ENGINES=all makes a missing engine a failure, and so a missing socket.io-client,
which tests drive with node where they can, and a missing Chromium, in which they look at the pages.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
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

from tests import chromium
from tests.suite_run import LOOK_S, SuiteRun, ended_together, started

DATABASE_URL = os.environ.get("TEST_DATABASE_URL") or "postgresql://postgres@127.0.0.1:5432/postgres"
REDIS_URL = os.environ.get("TEST_REDIS_URL") or "redis://127.0.0.1:6379/0"
CONNECT_TIMEOUT_S = 2

SQLITE = "SQLite"
SERVERS = "PostgreSQL + Redis"

MEMORY = "/dev/shm"
MEMORY_MIN_BYTES = 1024 * 1024 * 1024

WAITS = "tests/test_idle.py"
"""Does nothing but wait, for longer than all else: in a whole run it waits beside the others."""
BESIDE = f"{SERVERS}, beside that"

LATER = [str(file) for file in sorted((Path(__file__).parent / "browser").glob("test_*.py"))[::2]]
"""Half of what drives a browser: in a whole run it begins when the first of the others has ended."""
AFTER = f"{SQLITE}, after that"

NODE_CLIENT = Path(__file__).parent / "socket_io_client"
NODE_OLDEST = 18


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
        results = _run(arguments)
        if problem := node_problem():
            results.append(_missing("socket.io-client", problem))
        if problem := chromium.problem():
            results.append(_missing("Chromium", problem))
    except KeyboardInterrupt:
        print("\nEngines: interrupted.")
        return 128 + signal.SIGINT
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


def node_problem() -> str | None:
    """Say in a few words why tests cannot drive socket.io-client; None when they can."""
    node = shutil.which("node")
    if node is None:
        return "there is no node"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < NODE_OLDEST:
        return f"node is {version}, older than {NODE_OLDEST}"
    if not (NODE_CLIENT / "node_modules" / "socket.io-client").is_dir():
        return f"npm has not installed it in tests/{NODE_CLIENT.name}"
    return None


def beside(arguments: Sequence[str]) -> bool:
    """Say whether what waits can wait beside the rest: nobody has chosen the tests to run."""
    return not any(
        argument.startswith(("-k", "-m")) or Path(argument.partition("::")[0]).exists()
        for argument in arguments
    )


def _run(arguments: Sequence[str]) -> list[Result]:
    """Run the suite on all engines at the same time; the first one's output is shown as it comes."""
    problem = postgresql_problem() or redis_problem()
    if problem or not beside(arguments):
        return _run_as_told(arguments, problem)
    _head(SQLITE)
    with ExitStack() as until_shown:
        on_sqlite = until_shown.enter_context(_on_sqlite([*arguments, *_without(LATER)]))
        on_servers = until_shown.enter_context(_on_servers([*arguments, *_without([WAITS])]))
        waiting = until_shown.enter_context(_on_servers([*arguments, WAITS]))
        with ended_together(on_sqlite, on_servers, waiting):
            _wait_for_one_of(on_sqlite, on_servers)
            after = until_shown.enter_context(_on_sqlite([*arguments, *LATER], is_shown=False))
            with ended_together(after):
                results = [_finish(SQLITE, on_sqlite), _shown(SERVERS, on_servers)]
                return [*results, _shown(BESIDE, waiting), _shown(AFTER, after)]


def _run_as_told(arguments: Sequence[str], problem: str | None) -> list[Result]:
    """Run the chosen tests, or all of them, in one run on each set of engines that can be reached."""
    _head(SQLITE)
    with _on_sqlite(arguments) as on_sqlite:
        if problem:
            return [_finish(SQLITE, on_sqlite), _missing(SERVERS, problem)]
        with _on_servers(arguments) as on_servers, ended_together(on_sqlite, on_servers):
            return [_finish(SQLITE, on_sqlite), _shown(SERVERS, on_servers)]


def _without(files: Sequence[str]) -> list[str]:
    return [f"--ignore={file}" for file in files]


def _wait_for_one_of(*runs: SuiteRun) -> None:
    while all(run.process.poll() is None for run in runs):
        time.sleep(LOOK_S)


def _shown(engines: str, run: SuiteRun) -> Result:
    _head(engines)
    return _finish(engines, run)


@contextmanager
def _on_sqlite(arguments: Sequence[str], *, is_shown: bool = True) -> Iterator[SuiteRun]:
    with TemporaryDirectory(prefix="convserver-tests-", dir=_quick_directory()) as directory:
        variables = {
            "DATABASE_URL": f"sqlite:///{directory}/convserver.sqlite3",
            "CONVSERVER_TEST_RUN": secrets.token_hex(4),
        }
        cache = f"cache_dir=.pytest_cache/{'sqlite' if is_shown else 'sqlite-after'}"
        with started(["-o", cache, *arguments], variables, directory, is_shown=is_shown) as run:
            yield run


@contextmanager
def _on_servers(arguments: Sequence[str]) -> Iterator[SuiteRun]:
    name = secrets.token_hex(4)
    variables = {"DATABASE_URL": DATABASE_URL, "REDIS_URL": REDIS_URL, "CONVSERVER_TEST_RUN": name}
    cache = "cache_dir=.pytest_cache/postgresql"
    try:
        with (
            TemporaryDirectory(prefix="convserver-tests-") as directory,
            started(["-o", cache, *arguments], variables, directory, is_shown=False) as run,
        ):
            yield run
    finally:
        # A run that was stopped leaves its database behind.
        _drop_database(f"test_convserver_{name}")


def _quick_directory() -> str | None:
    """Return a directory in memory, where commits wait for no disk, if there is one with room.

    No test cuts the power: what a killed process leaves is there as it is on a disk.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_MIN_BYTES:
        return MEMORY
    return None


def _head(engines: str) -> None:
    print(f"\n{engines}", flush=True)


def _finish(engines: str, run: SuiteRun) -> Result:
    is_failure = run.finish() != 0
    verdict = "failed" if is_failure else "passed"
    return Result(engines=engines, verdict=f"{verdict} ({run.details()})", is_failure=is_failure)


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
