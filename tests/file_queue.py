"""The files of the suite, which several runs at a time take one after another, those that take long first.

As a plugin of a run, this module lets it collect and run a file whenever it is done with the one before.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SQLITE = "SQLite"
SERVERS = "PostgreSQL + Redis"

RUNS = {SQLITE: 3, SERVERS: 2}
"""So many at a time. A test waits about as long as it works, for processes, pages and the database."""

ROOT = Path(__file__).parent.parent

SLOW = {
    SQLITE: (
        "test_v0_clients",
        "browser/test_agent_states",
        "browser/test_approval",
        "test_configuration",
        "test_rendering",
        "test_access",
        "test_shutdown",
        "browser/test_hostile_pages",
        "test_database_files",
        "browser/test_drafts",
        "test_admin",
        "browser/test_message_queue",
        "browser/test_accessibility",
        "browser/test_login",
        "test_schemathesis",
        "test_upgrades",
        "test_interruption",
        "test_replaced_databases",
        "test_agent",
        "test_v1_agent_face",
        "browser/test_first_visit",
        "browser/test_list",
        "test_v1_runs",
        "test_web_access",
        "test_v1_agent_events",
        "test_commands_across_processes",
        "browser/test_late_news",
        "test_private_files",
        "test_v0_packets",
        "test_search",
        "test_quickstart",
        "test_git_providers",
        "test_hints",
        "test_connections",
        "test_v1_server",
    ),
    SERVERS: (
        "test_idle",
        "test_upgrades",
        "test_v0_clients",
        "test_v1_runs",
        "test_interruption",
        "test_commands_across_processes",
        "browser/test_connection",
        "test_agent",
        "test_v1_agent_events",
        "test_search",
        "test_replaced_databases",
        "test_v1_socket",
        "test_lost_commits",
        "test_exhausted_database",
        "test_webhooks",
    ),
}
"""The files that take the longest, as `make test` says at its end: what is begun late should be short."""

VARIABLE = "CONVSERVER_TEST_QUEUE"
QUEUE = pytest.StashKey["FileQueue"]()


def in_order(engines: str) -> list[str]:
    """Return every file of tests, as seen from the root of the repository, the slow ones first."""
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py"))
    places = {file: len(SLOW[engines]) for file in files}
    for place, name in enumerate(SLOW[engines]):
        places.update({file: place for file in files if file.endswith(f"/{name}.py")})
    return sorted(files, key=lambda file: places[file])


class FileQueue:
    """Names of files in a file of its own, of which each is taken once, by whichever process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def arguments(self) -> list[str]:
        """What pytest is told so that it takes its files from here; how many there are, it does not know."""
        return ["-p", __name__, "-o", "console_output_style=classic"]

    @property
    def variables(self) -> dict[str, str]:
        """The environment that goes with them."""
        return {VARIABLE: str(self._path)}

    def fill(self, names: Sequence[str]) -> None:
        """Put these in."""
        self._path.write_text("\n".join(names))

    def take(self) -> str | None:
        """Take the first name out; None if there is none left."""
        with self._path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            first, _, others = file.read().partition("\n")
            file.seek(0)
            file.truncate()
            file.write(others)
        return first or None


def pytest_configure(config: pytest.Config) -> None:
    """Begin with the first file of the queue that the run was started with."""
    queue = config.stash[QUEUE] = FileQueue(Path(os.environ[VARIABLE]))
    first = queue.take()
    config.args = [] if first is None else [first]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run what was collected, and then file after file until none is left.

    Like pytest's own, which knows all tests before it runs the first. A file that cannot be collected is a
    failure, and the others are run all the same.
    """
    tests = _tests(session)
    test = next(tests, None)
    while test is not None:
        following = next(tests, None)  # pytest keeps the fixtures that this one uses, too
        test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        test = following
    return True


def _tests(session: pytest.Session) -> Iterator[pytest.Item]:
    collected = session.testscollected
    yield from session.items
    while (file := session.config.stash[QUEUE].take()) is not None:
        session.perform_collect([file])
        collected += len(session.items)
        session.testscollected = collected
        yield from session.items
