"""Run the suite once on SQLite and, when both can be reached, once on PostgreSQL and Redis.

Run as `python -m tests.engines [pytest arguments]`. TEST_DATABASE_URL and TEST_REDIS_URL say where to
look; CONVSERVER_REQUIRE_ENGINES=all makes a missing engine a failure, and so a missing socket.io-client,
which tests drive with node where they can.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from psycopg import sql

DATABASE_URL = os.environ.get("TEST_DATABASE_URL") or "postgresql://postgres@127.0.0.1:5432/postgres"
REDIS_URL = os.environ.get("TEST_REDIS_URL") or "redis://127.0.0.1:6379/0"
CONNECT_TIMEOUT_S = 2

NODE_CLIENT = Path(__file__).parent / "socket_io_client"
NODE_OLDEST = 18

OWN_PREFIXES = ("CONVSERVER_", "LLM_")
OWN_NAMES = {
    "ALLOW_SET_CONVERSATION_ID",
    "DATABASE_URL",
    "DJANGO_SETTINGS_MODULE",
    "HOST",
    "PERMITTED_CORS_ORIGINS",
    "PORT",
    "REDIS_URL",
    "SECRET_KEY",
    "SECRET_KEY_FALLBACKS",
    "SESSION_API_KEY",
    "WEB_CONCURRENCY",
}
"""With OWN_PREFIXES, what the server reads: a developer's shell must not change what is tested."""


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
        results = [_run_on_sqlite(arguments), _run_on_servers(arguments)]
        if problem := node_problem():
            results.append(_missing("socket.io-client", problem))
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Leave the counts of this run for `main`, which started it with this module as a plugin."""
    tests = {
        outcome: {report.nodeid for report in terminalreporter.stats.get(outcome, [])}
        for outcome in ("passed", "xfailed", "xpassed", "failed", "error", "skipped")
    }
    skipped = tests.pop("skipped")
    failed = tests["failed"] | tests["error"]
    ran = len(set().union(*tests.values()))
    counts = [f"{ran} test{'' if ran == 1 else 's'}"]
    counts += [f"{len(failed)} failed"] if failed else []
    counts += [f"{len(skipped)} skipped"] if skipped else []
    Path(os.environ["CONVSERVER_TEST_COUNTS"]).write_text(", ".join(counts))


def _run_on_sqlite(arguments: Sequence[str]) -> Result:
    with TemporaryDirectory(prefix="convserver-tests-") as directory:
        database_url = f"sqlite:///{directory}/convserver.sqlite3"
        return _run(
            "SQLite",
            arguments,
            directory,
            DATABASE_URL=database_url,
            CONVSERVER_TEST_RUN=secrets.token_hex(4),
        )


def _run_on_servers(arguments: Sequence[str]) -> Result:
    engines = "PostgreSQL + Redis"
    if problem := postgresql_problem() or redis_problem():
        return _missing(engines, problem)

    run = secrets.token_hex(4)
    try:
        with TemporaryDirectory(prefix="convserver-tests-") as directory:
            return _run(
                engines,
                arguments,
                directory,
                DATABASE_URL=DATABASE_URL,
                REDIS_URL=REDIS_URL,
                CONVSERVER_TEST_RUN=run,
            )
    finally:
        # A run that was stopped leaves its database behind.
        _drop_database(f"test_convserver_{run}")


def _missing(engines: str, problem: str) -> Result:
    if os.environ.get("CONVSERVER_REQUIRE_ENGINES") == "all":
        verdict = f"missing, but CONVSERVER_REQUIRE_ENGINES=all asks for them ({problem})"
        return Result(engines=engines, verdict=verdict, is_failure=True)
    return Result(engines=engines, verdict=f"skipped ({problem})", is_failure=False)


def _run(engines: str, arguments: Sequence[str], directory: str, **variables: str) -> Result:
    """Run pytest in a clean environment with these variables; what it keeps goes into `directory`."""
    print(f"\n{engines}", flush=True)
    counts = Path(directory, "counts")
    environment = {name: value for name, value in os.environ.items() if not _is_own(name)}
    environment |= {"CONVSERVER_DATA_DIR": directory, "CONVSERVER_TEST_COUNTS": str(counts)} | variables
    exit_code = _pytest(arguments, environment)
    verdict = "passed" if exit_code == 0 else "failed"
    details = counts.read_text() if counts.exists() else f"pytest ended with {exit_code}"
    return Result(engines=engines, verdict=f"{verdict} ({details})", is_failure=exit_code != 0)


def _pytest(arguments: Sequence[str], environment: dict[str, str]) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "tests.engines", *arguments]
    with subprocess.Popen(command, env=environment) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()  # the terminal told pytest as well, and it is taking its database down
            raise
        except SystemExit:
            process.terminate()
            raise


def _exit_on_sigterm(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)


def _drop_database(name: str) -> None:
    drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    try:
        with psycopg.connect(DATABASE_URL, connect_timeout=CONNECT_TIMEOUT_S, autocommit=True) as connection:
            connection.execute(drop)
    except psycopg.Error as error:
        print(f"The test database {name} may be left behind: {_reason(error)}", file=sys.stderr)


def _is_own(name: str) -> bool:
    return name in OWN_NAMES or name.startswith(OWN_PREFIXES)


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
