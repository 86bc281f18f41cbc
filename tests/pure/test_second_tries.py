"""Failed tests run once more, alone, after all others, as `make test` does with a whole suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.second_tries import FLAKY_AT_MOST, TRIED_AT_MOST, after
from tests.support.runner.suite_run import Outcome

TESTS = Path(__file__).parents[1]

INI = """
[pytest]
markers = no_second_try: its first failure is final
"""

CONFTEST = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    # One file is too few for all parts of a run.
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
"""

PASSES_AT_THE_SECOND_TRY = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range({count}))
def test_it(number):
    with Path(f"{{number}}.tries").open("a") as tries:
        tries.write("x")
        assert tries.tell() > 1, "what went wrong"
"""

NEVER_PASSES = """
from pathlib import Path

def test_it():
    with Path("0.tries").open("a") as tries:
        tries.write("x")
    raise AssertionError("what went wrong")
"""

MARKED = "import pytest\npytestmark = pytest.mark.no_second_try" + PASSES_AT_THE_SECOND_TRY.format(count=1)

OF_ALL_SORTS = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError

def test_that_fails():
    assert False

def test_with_a_broken_fixture(broken):
    pass

@pytest.mark.no_second_try
def test_that_is_marked():
    assert False

@pytest.mark.no_second_try
def test_that_is_marked_and_has_a_broken_fixture(broken):
    pass

def test_with_failed_subtests(subtests):
    for number in range(3):
        with subtests.test("row", number=number):
            assert number == 1, "what went wrong"

def test_that_passes():
    pass
"""

SHARED = """
import pytest

@pytest.fixture(scope="session")
def shared():
    {shared}

def test_that_fails():
    assert False

def test_that_shares(shared):
    pass
"""


class Suite:
    """A suite of its own with the runner of this one, on SQLite alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "pytest.ini").write_text(INI)
        (directory / "tests").mkdir()
        (directory / "tests" / "conftest.py").write_text(CONFTEST)
        for module in TESTS.glob("*.py"):
            if module.name != "conftest.py":
                (directory / "tests" / module.name).symlink_to(module)
        (directory / "tests" / "support").symlink_to(TESTS / "support")

    def run(self, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run these tests as `make test` does where it reaches no PostgreSQL."""
        return self._run("tests.engines", tests, arguments, TEST_DATABASE_URL="postgresql://127.0.0.1:1/none")

    def repeatable(self, tests: str, *arguments: str) -> list[str]:
        """Return which of these tests failed and may run again, as one run of pytest reports it."""
        return [name.partition("::")[2] for name in self.report(tests, *arguments)["repeatable"]]

    def report(self, tests: str, *arguments: str) -> dict[str, Any]:
        """Return the report of one run of pytest with these tests."""
        report = self.directory / "report"
        self._run(
            "pytest",
            tests,
            ["-p", "tests.support.runner.suite_run", *arguments],
            CONVSERVER_TEST_REPORT=str(report),
        )
        told: dict[str, Any] = json.loads(report.read_text())
        return told

    def flaky(self) -> list[str]:
        """Return the lines of its file of flaky tests, without the time."""
        file = self.directory / "test-results" / "flaky.txt"
        return [line.partition(" ")[2] for line in file.read_text().splitlines()] if file.exists() else []

    def tries(self) -> int:
        """Return how many times its first test has run."""
        return len((self.directory / "0.tries").read_text())

    def _run(
        self, module: str, tests: str, arguments: Sequence[str], **variables: str
    ) -> subprocess.CompletedProcess[str]:
        (self.directory / "tests" / "test_suite.py").write_text(tests)
        # Without the plugins of this suite, a run begins in half a second.
        own = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
        own.pop("CONVSERVER_REQUIRE_ENGINES", None)
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=self.directory,
            env=own,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """A suite in a directory of its own."""
    return Suite(tmp_path)


def test_a_run_passes_if_its_failed_tests_pass_alone_and_says_that_they_are_flaky(suite: Suite) -> None:
    run = suite.run(PASSES_AT_THE_SECOND_TRY.format(count=FLAKY_AT_MOST))
    printed = run.stdout.splitlines()
    flaky = [
        f"SQLite: tests/test_suite.py::test_it[{number}]: {{}}AssertionError: what went wrong"
        for number in range(FLAKY_AT_MOST)
    ]
    assert [line for line in printed if "; then passed" in line] == [
        f"{line.format('first ')}; then passed" for line in flaky
    ]
    assert suite.flaky() == [line.format("") for line in flaky]
    assert printed[-1].startswith("Engines: SQLite passed (3 tests, 3 flaky)")
    assert run.returncode == 0


def test_a_run_with_too_many_flaky_tests_fails(suite: Suite) -> None:
    run = suite.run(PASSES_AT_THE_SECOND_TRY.format(count=FLAKY_AT_MOST + 1))
    assert len(suite.flaky()) == FLAKY_AT_MOST + 1
    assert run.stdout.splitlines()[-1].startswith("Engines: SQLite failed (4 tests, 4 flaky)")
    assert run.returncode == 1


@pytest.mark.parametrize(
    ("tests", "arguments", "tries"),
    [
        pytest.param(NEVER_PASSES, [], 2, id="fails again"),
        pytest.param(MARKED, [], 1, id="is marked"),
        pytest.param(PASSES_AT_THE_SECOND_TRY.format(count=1), ["tests/test_suite.py"], 1, id="is named"),
    ],
)
def test_a_run_fails_if_a_test(tests: str, arguments: list[str], tries: int, suite: Suite) -> None:
    (suite.directory / "tests" / "test_suite.py").touch()
    run = suite.run(tests, *arguments)
    assert suite.tries() == tries
    assert not suite.flaky()
    assert run.stdout.splitlines()[-1].startswith("Engines: SQLite failed (1 test, 1 failed)")
    assert run.returncode == 1


def test_what_is_marked_may_not_run_again(suite: Suite) -> None:
    assert suite.repeatable(OF_ALL_SORTS) == [
        "test_that_fails",
        "test_with_a_broken_fixture",
        "test_with_failed_subtests",
    ]


def test_a_failed_subtest_is_named_and_takes_no_time_beside_its_tests(suite: Suite) -> None:
    report = suite.report(
        """
import time

def test_rows(subtests):
    for row in range(3):
        with subtests.test("row", number=row):
            time.sleep(0.5)
            assert row != 1
"""
    )
    ((_, what),) = report["failures"].items()
    assert what.startswith("[row] (number=1): assert 1 != 1")
    ((_, seconds),) = report["seconds"].items()
    assert 1.5 <= seconds < 3


def test_a_failed_test_names_each_of_its_rows_that_failed(suite: Suite) -> None:
    failures = suite.report(OF_ALL_SORTS)["failures"]
    assert failures["tests/test_suite.py::test_with_failed_subtests"] == (
        "[row] (number=0): AssertionError: what went wrong; "
        "[row] (number=2): AssertionError: what went wrong; contains 2 failed subtests"
    )


@pytest.mark.parametrize(
    "shared",
    ["raise RuntimeError", "pytest.fail()", "yield\n    raise RuntimeError", "yield\n    pytest.fail()"],
)
def test_where_a_fixture_of_the_session_fails_nothing_may_run_again(shared: str, suite: Suite) -> None:
    assert suite.repeatable(SHARED.format(shared=shared)) == []


@pytest.mark.parametrize("option", ["-x", "--maxfail=2"])
def test_where_failures_may_end_the_run_nothing_may_run_again(option: str, suite: Suite) -> None:
    assert suite.repeatable(NEVER_PASSES, option) == []


def test_a_file_that_cannot_be_imported_may_not_run_again(suite: Suite) -> None:
    assert suite.repeatable("import nothing_of_this_name") == []


def failed(*tests: str, exit_code: int = 1, repeatable: Sequence[str] | None = None) -> Outcome:
    """Return the outcome of a run in which these tests failed; each may run again if nothing else is said."""
    return Outcome(
        exit_code=exit_code,
        failures=dict.fromkeys(tests, "what went wrong"),
        repeatable=tests if repeatable is None else repeatable,
    )


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([failed(*(f"test_{number}" for number in range(TRIED_AT_MOST + 1)))], "11 went wrong"),
        ([failed("test_a"), Outcome(exit_code=-9, is_told=False)], "broke off"),
        ([failed("test_a", exit_code=pytest.ExitCode.INTERRUPTED)], "broke off"),
        ([failed("test_a"), failed(exit_code=1)], "without a failed test"),
        ([failed("test_a"), failed("test_b", "test_c", repeatable=["test_c"])], "-x: test_b"),
    ],
)
def test_no_test_runs_again_if_one_failure_is_final(
    runs: list[Outcome], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = {"SQLite": runs}
    assert after(outcomes, lambda engines, test: pytest.fail("it ran again")) == outcomes
    assert reason in capsys.readouterr().out


def test_a_test_that_is_skipped_at_its_second_try_has_failed() -> None:
    outcomes = {"SQLite": [failed("test_a")]}
    assert after(outcomes, lambda engines, test: Outcome(exit_code=0, ran=0, skipped=1)) == outcomes
