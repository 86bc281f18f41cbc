"""The files of the suite, which several runs at a time take one after another, those that take long first.

As a plugin of a run, this module lets it take a file whenever it is done with the one before.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import pytest

SQLITE = "SQLite"
SERVERS = "PostgreSQL + Redis"

RUNS = {SQLITE: 3, SERVERS: 2}
"""So many at a time. A test waits about as long as it works, for processes, pages and the database."""

ROOT = Path(__file__).parents[3]

SLOW = {
    SQLITE: (
        "test_v0_clients",
        "test_access",
        "test_admin",
        "test_schemathesis",
        "test_rendering",
        "test_shutdown",
        "test_configuration",
        "test_direct_reads",
        "test_search",
        "test_agent",
        "test_interruption",
        "test_database_files",
        "test_v1_agent_events",
        "test_upgrades",
        "test_v1_runs",
        "test_replaced_databases",
        "test_v1_agent_face",
        "test_web_access",
        "test_commands_across_processes",
        "test_private_files",
        "test_v0_packets",
        "test_quickstart",
        "test_git_providers",
        "test_hints",
        "test_connections",
        "test_v1_server",
        "test_mcp_conformance",
        "browser/test_approval",
        "browser/test_agent_states",
        "browser/test_message_queue",
        "browser/test_drafts",
        "browser/test_streaming",
        "browser/test_hostile_pages",
        "browser/test_accessibility",
        "browser/test_login",
        "browser/test_first_visit",
        "browser/test_list",
        "browser/test_late_news",
    ),
    SERVERS: (
        "test_search",
        "test_upgrades",
        "test_idle",
        "test_v1_runs",
        "test_v1_agent_events",
        "test_interruption",
        "test_v0_clients",
        "test_commands_across_processes",
        "test_agent",
        "test_replaced_databases",
        "test_direct_reads",
        "test_v1_socket",
        "test_lost_commits",
        "test_exhausted_database",
        "test_webhooks",
        "browser/test_connection",
    ),
}
"""The files that take the longest, as `make test` says at its end: what is begun late should be short."""

FOR_ONE_ENGINE = re.compile(r"^pytestmark = .*\bone_engine\b", re.MULTILINE)
"""How a file says that of all its tests."""

BROWSER = "tests/browser/"

MODULES = pytest.StashKey[dict[str, "pytest.Item | pytest.Collector"]]()
"""What pytest has found of each file, under its name; nothing is imported yet."""

VARIABLE = "CONVSERVER_TEST_QUEUE"


def in_order(engines: str) -> list[str]:
    """Return every file with tests for these engines, as seen from the root, the slow ones first.

    Those that drive a browser come after all others: a run that has started one can await nothing any more.
    """
    found = (file for file in files_below(ROOT / "tests") if engines == SQLITE or not is_for_one_engine(file))
    files = [str(file.relative_to(ROOT)) for file in found]
    places = {file: len(SLOW[engines]) for file in files}
    for place, name in enumerate(SLOW[engines]):
        places.update({file: place for file in files if file.endswith(f"/{name}.py")})
    return sorted(files, key=lambda file: (file.startswith(BROWSER), places[file]))


def files_below(directory: Path | str) -> list[Path]:
    """Return every file of tests in a directory and in those within."""
    return sorted(Path(directory).rglob("test_*.py"))


def is_for_one_engine(file: Path) -> bool:
    """Say whether none of its tests needs an engine of its own: to import some takes ten seconds."""
    text = file.read_text()
    return bool(FOR_ONE_ENGINE.search(text)) and "needs_engine" not in text


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool:
    """Find the files, and import none yet: a run imports what it takes, when it takes it."""
    files = chain.from_iterable(map(files_below, session.config.args))
    found = session.perform_collect(list(map(str, files)), genitems=False)
    session.config.stash[MODULES] = {
        str(file.path.relative_to(session.config.rootpath)): file for file in found
    }
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests of one file after another, until the queue is empty.

    Like pytest's own, which runs all that it has collected.
    """
    tests = _tests(session, FileQueue(Path(os.environ[VARIABLE])))
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


def _tests(session: pytest.Session, queue: FileQueue) -> Iterator[pytest.Item]:
    """Yield the tests of each file that this run takes; a file that cannot be imported is a failure."""
    for name in iter(queue.take, None):
        tests = list(session.genitems(session.config.stash[MODULES][name]))
        session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=tests)
        session.testscollected += len(tests)
        yield from tests
