"""Running the suite on all engines at the same time, as `make test` does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import psycopg
import pytest

from tests.conftest import on_postgresql
from tests.engines import DATABASE_URL, FAILED, SKIPPED, SLOWEST, is_whole
from tests.support.data.threads import in_threads
from tests.support.people.clients import WAIT_S
from tests.support.runner.file_queue import RUNS, SLOW, SQLITE, FileQueue, in_order, is_for_one_engine
from tests.support.wires.network import wait_until

ROOT = Path(__file__).parents[2]
FILE = "tests/pure/test_engines.py"

AT_THE_SAME_TIME = """
from pathlib import Path
from threading import Event
import pytest
from django.db import connection

def test_that_waits_for_the_other():
    here = Path(__file__).parents[1]
    (here / f"{connection.vendor}.mark").touch()
    while len(list(here.glob("*.mark"))) < 2:
        Event().wait(0.01)

def test_that_fails_on_one():
    assert connection.vendor == "sqlite", "what went wrong"

@pytest.mark.skip(reason="is for another day")
def test_that_is_skipped():
    pass
"""

WITHOUT_END = """
from pathlib import Path
from threading import Event
import pytest
from django.db import connection

@pytest.mark.django_db
def test_without_end():
    Path(__file__).with_name(connection.vendor).write_text(str(connection.settings_dict["NAME"]))
    Event().wait()
"""

QUICKLY = (
    *("--no-migrations", "-p", "no:schemathesis", "-p", "no:hypothesispytest", "-p", "no:asyncio"),
    *("-p", "no:playwright"),  # it would empty test-results/
)
"""What a run of one small test can go without."""
PYTEST = [sys.executable, "-m", "pytest", "-c", "/dev/null", *QUICKLY, "--ds", "convserver.settings"]
STEP_S = 6 * WAIT_S
"""So long both runs may take to make their databases, and again to end."""

# The engines run both, whichever this is.
pytestmark = [on_postgresql, pytest.mark.needs_engine, pytest.mark.timeout(3 * STEP_S)]


class Suite:
    """A suite of its own, in one file, run on both sets of engines."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[str] | None = None

    def start(self, tests: str) -> subprocess.Popen[str]:
        file = self.directory / "test_suite.py"
        file.write_text(tests)
        command = [sys.executable, "-m", "tests.engines", "-q", "-c", "/dev/null", *QUICKLY, str(file)]
        self._process = subprocess.Popen(
            [*command, "--rootdir", str(self.directory), "--ds", "convserver.settings"],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=hear_interrupts,
        )
        return self._process

    def marks(self) -> dict[str, str]:
        """Return what its tests have written, by the engine that they run on."""
        files = [self.directory / vendor for vendor in ("sqlite", "postgresql")]
        return {file.name: text for file in files if file.exists() and (text := file.read_text())}

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.communicate()


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Suite]:
    """A suite of which nothing runs after the test."""
    suite = Suite(tmp_path)
    yield suite
    suite.end()


def hear_interrupts() -> None:
    """Let a new process hear Ctrl-C, which one in the background of a shell does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lines(run: subprocess.Popen[str]) -> list[str]:
    """Return all that a run prints, once it is over."""
    return run.communicate(timeout=STEP_S)[0].splitlines()


def test_both_run_at_the_same_time_and_what_each_prints_is_shown_whole_and_in_order(suite: Suite) -> None:
    run = suite.start(AT_THE_SAME_TIME)
    printed = lines(run)
    second = printed.index("PostgreSQL + Redis")
    on_sqlite, on_servers = printed[printed.index("SQLite") : second], printed[second:]
    assert any(line.startswith("2 passed") for line in on_sqlite)
    assert any(line.startswith("E ") and line.endswith("what went wrong") for line in on_servers)
    assert any("test_suite.py (SQLite" in line for line in printed[printed.index(SLOWEST) :])
    assert "     1  SQLite: is for another day" in printed[printed.index(SKIPPED) :]
    failed = printed[printed.index(FAILED) + 1]
    assert failed.startswith("PostgreSQL + Redis: ")
    assert failed.partition("::")[2] == "test_that_fails_on_one: AssertionError: what went wrong"
    verdicts = (
        "SQLite passed (2 tests, 1 skipped)",
        "PostgreSQL + Redis failed (2 tests, 1 failed, 1 skipped)",
    )
    assert printed[-1].startswith(f"Engines: {', '.join(verdicts)}")  # what else is missing here follows
    assert run.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        ([], True),
        (["--durations=9"], True),
        (["-k", "idle"], False),
        ([FILE], False),
        (["-q", f"{FILE}::test_it"], False),
    ],
)
def test_only_a_whole_suite_is_divided(
    arguments: list[str], whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert Path(FILE).exists()
    assert is_whole(arguments) == whole


@pytest.mark.parametrize("engines", RUNS)
def test_the_files_that_take_long_come_first_and_none_with_tests_for_these_engines_is_left_out(
    engines: str,
) -> None:
    files = in_order(engines)
    slow = [name for name in SLOW[engines] if not name.startswith("browser/")]
    assert all(file.endswith(f"/{name}.py") for file, name in zip(files, slow, strict=False))
    in_browser = [file for file in files if file.startswith("tests/browser/")]
    assert files[-len(in_browser) :] == in_browser
    found = (ROOT / "tests").rglob("test_*.py")
    expected = found if engines == SQLITE else (file for file in found if not is_for_one_engine(file))
    assert set(files) == {str(file.relative_to(ROOT)) for file in expected}
    assert len(files) == len(set(files))
    assert FILE in files


@pytest.mark.parametrize(
    ("text", "is_left_out"),
    [
        ("pytestmark = pytest.mark.one_engine", True),
        ("pytestmark = [pytest.mark.one_engine, pytest.mark.timeout(9)]", True),
        ("@pytest.mark.one_engine\ndef test_it(): pass", False),
        ("pytestmark = pytest.mark.one_engine\n@pytest.mark.needs_engine\ndef test_it(): pass", False),
        ("def test_it(): pass", False),
    ],
)
def test_a_file_is_left_to_one_engine_if_all_of_its_tests_are(
    text: str, is_left_out: bool, tmp_path: Path
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(text)
    assert is_for_one_engine(file) == is_left_out


def test_a_file_is_taken_once_however_many_take_at_a_time(tmp_path: Path) -> None:
    queue = FileQueue(tmp_path / "queue")
    queue.fill([str(n) for n in range(200)])
    taken: list[list[str]] = [[] for _ in range(4)]
    in_threads(4, lambda number: taken[number].extend(iter(queue.take, None)))
    assert sorted(chain(*taken), key=int) == [str(n) for n in range(200)]


def test_a_run_takes_the_files_of_its_queue_and_imports_no_others(tmp_path: Path) -> None:
    for name in "ac":
        (tmp_path / f"test_{name}.py").write_text("def test_it(): pass")
    (tmp_path / "test_b.py").write_text("raise SystemExit('this file was left to another')")
    run = run_from_queue(tmp_path, "test_c.py", "test_a.py")
    ran = [line.rpartition("/")[2] for line in run.stdout.splitlines() if line.endswith("PASSED")]
    assert ran == ["test_c.py::test_it PASSED", "test_a.py::test_it PASSED"], run.stdout
    assert run.returncode == pytest.ExitCode.OK


def test_a_file_that_cannot_be_imported_is_a_failure_and_the_others_are_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import nothing_of_this_name")
    (tmp_path / "test_b.py").write_text("def test_it(): pass")
    run = run_from_queue(tmp_path, "test_a.py", "test_b.py")
    assert "No module named 'nothing_of_this_name'" in run.stdout
    assert "1 passed, 1 error" in run.stdout
    assert run.returncode == pytest.ExitCode.TESTS_FAILED


def run_from_queue(directory: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """Run these files of a directory, one after another, until the queue of them is empty."""
    queue = FileQueue(directory / "queue")
    queue.fill(files)
    own = {"DATABASE_URL": f"sqlite:///{directory}/db", "REDIS_URL": "", **queue.variables}
    run = subprocess.run(
        [*PYTEST, "-v", *queue.arguments, "--rootdir", str(directory), str(directory)],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
    assert queue.take() is None
    return run


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.sampled(1)
def test_both_end_and_leave_no_database_when_the_run_is_stopped(suite: Suite, told: signal.Signals) -> None:
    run = suite.start(WITHOUT_END)
    wait_until(lambda: len(suite.marks()) == 2, within_s=STEP_S)
    tell(run, told)
    lines(run)
    name = suite.marks()["postgresql"]
    with psycopg.connect(DATABASE_URL) as connection:
        found = connection.execute("SELECT datname FROM pg_database WHERE datname = %s", [name]).fetchall()
    assert not found
    assert not Path(suite.marks()["sqlite"]).exists()
    assert run.returncode == 128 + told


def tell(run: subprocess.Popen[str], told: signal.Signals) -> None:
    """Send a signal; Ctrl-C goes to everybody at the terminal."""
    if told == signal.SIGINT:
        os.killpg(run.pid, told)
    else:
        run.send_signal(told)
