"""One run of the suite by pytest, in an environment that says which engines it is on.

As a plugin of that run, this module reports to the process that started it how many tests ran, how long each
file took, and which failed tests may run again. It ends the run on SIGTERM as Ctrl-C does: with its servers
and its database taken down.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

import pytest

END_WAIT_S = 30.0
"""So long a run that is told to end may take down what it uses."""
LOOK_S = 0.2
"""How often there may be more to show."""

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
COSTLY_NAMES = {"PYTHONDONTWRITEBYTECODE"}
"""Each of the many servers that tests start would compile all its code again."""

NO_SECOND_TRY = "no_second_try"
"""The mark of a test whose failure is final."""

_seconds: defaultdict[str, float] = defaultdict(float)
"""How long the tests of each file took so far, with their fixtures."""

_repeatable: set[str] = set()
"""Tests that failed without the mark."""

_broken_session: set[str] = set()
"""Tests in which a fixture of the whole session failed."""


def pytest_configure() -> None:
    """End on SIGTERM as on Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt_once)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add what a phase of a test took."""
    if not isinstance(report, pytest.SubtestReport):  # its test takes this time as well
        _seconds[report.nodeid.partition("::")[0]] += report.duration


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a failed test that may run again."""
    report = yield
    if report.failed and item.get_closest_marker(NO_SECOND_TRY) is None:
        _repeatable.add(item.nodeid)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note a failure in a fixture of the session: all tests behind it share the fixture."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception):
        if fixturedef.scope == "session":
            _broken_session.add(request.node.nodeid)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Note a failure behind the last test, where the fixtures of the session end as well."""
    try:
        yield
    except (Exception, pytest.fail.Exception):
        if nextitem is None:
            _broken_session.add(item.nodeid)
        raise


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Leave the report of this run."""
    tests = {
        outcome: {report.nodeid for report in terminalreporter.stats.get(outcome, [])}
        for outcome in ("passed", "xfailed", "xpassed", "failed", "error", "skipped")
    }
    skipped = tests.pop("skipped")
    failures: defaultdict[str, list[str]] = defaultdict(list)
    for outcome in ("failed", "error"):
        for failed in terminalreporter.stats.get(outcome, []):
            failures[failed.nodeid].append(_failure(failed))
    report = {
        "ran": len(set().union(*tests.values())),
        "failures": {test: "; ".join(said) for test, said in failures.items()},
        "repeatable": [] if _ends_early(terminalreporter.config) or _broken_session else sorted(_repeatable),
        "skipped": len(skipped),
        "skipped_for": Counter(map(_reason, terminalreporter.stats.get("skipped", []))),
        "seconds": _seconds,
    }
    Path(os.environ["CONVSERVER_TEST_REPORT"]).write_text(json.dumps(report))


def _ends_early(config: pytest.Config) -> bool:
    """Return whether failures may have kept other tests from running (`-x`, `--maxfail`)."""
    return bool(config.option.maxfail)


def _failure(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the first line of what went wrong, or the last line of a plain text, after the row's name."""
    crash = getattr(report.longrepr, "reprcrash", None)
    said = crash.message.splitlines() if crash else report.longreprtext.splitlines()[::-1]
    first = next(iter(said), "")
    if isinstance(report, pytest.SubtestReport):
        return f"{report.head_line.removeprefix(report.location[2]).strip()}: {first}"
    return first


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test, or a whole file, was skipped."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return said.removeprefix("Skipped: ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run went."""

    exit_code: int
    is_told: bool = True
    """Whether the run came to its report; without one, it ended with an error or was ended."""
    ran: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    """What went wrong, for the name of each test that failed and each file that could not be read."""
    repeatable: Sequence[str] = ()
    """The failed tests that may run again."""
    flaky: Mapping[str, str] = field(default_factory=dict)
    """What went wrong at the first try, for the name of each test that passed at the second one."""
    skipped: int = 0
    skipped_for: Mapping[str, int] = field(default_factory=dict)
    """How many tests were skipped for each reason."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long the tests of each file took."""

    @property
    def failed(self) -> int:
        return len(self.failures)


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteRun:
    """A run that has been started."""

    process: subprocess.Popen[bytes]
    report: Path
    output: Path | None
    """Where its output is kept; None if it is shown as it comes."""

    def finish(self) -> Outcome:
        """Wait for the end, with its output shown from the first line on; return how it went."""
        if self.output is not None:
            with self.output.open("rb") as output:
                while self.process.poll() is None:
                    _show_more(output)
                    time.sleep(LOOK_S)
                _show_more(output)
        exit_code = self.process.wait()
        if not self.report.exists():
            return Outcome(exit_code=exit_code, is_told=False)
        return Outcome(exit_code=exit_code, **json.loads(self.report.read_text()))


@contextmanager
def started(
    arguments: Sequence[str], variables: Mapping[str, str], directory: str, *, is_shown: bool
) -> Iterator[SuiteRun]:
    """Run pytest with these variables; what it keeps goes into `directory`.

    Of several runs at once only one should be shown as it comes. One that is left before its end is ended.
    """
    report, output = Path(directory, "report"), Path(directory, "output")
    environment = {name: value for name, value in os.environ.items() if not _is_changed(name)}
    environment |= {"CONVSERVER_DATA_DIR": directory, "CONVSERVER_TEST_REPORT": str(report), **variables}
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.runner.suite_run", *arguments]
    if is_shown:
        process = subprocess.Popen(command, env=environment)
    else:
        process = _start_unseen(command, environment, output)
    try:
        yield SuiteRun(process=process, report=report, output=None if is_shown else output)
    except KeyboardInterrupt:
        _wait(process)  # the terminal told pytest as well, and it is taking its database down
        raise
    finally:
        _end(process)


@contextmanager
def ended_together(*runs: SuiteRun) -> Iterator[None]:
    """Tell all of them at once when this process is told to end: none waits until another is down."""
    try:
        yield
    except SystemExit:
        for run in runs:
            run.process.terminate()
        raise


def _start_unseen(
    command: Sequence[str], environment: Mapping[str, str], output: Path
) -> subprocess.Popen[bytes]:
    """Start a program that writes to a file, in colour if this one is read at a terminal."""
    colours = {"PY_COLORS": "1"} if sys.stdout.isatty() else {}
    with output.open("wb") as file:
        return subprocess.Popen(
            command,
            env={**colours, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def _show_more(output: BinaryIO) -> None:
    sys.stdout.buffer.write(output.read())
    sys.stdout.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it gently if it still runs, and at once if that takes too long."""
    if process.poll() is None:
        process.terminate()
        if not _wait(process):
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes]) -> bool:
    """Say whether the process ended within END_WAIT_S."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_WAIT_S)
    return process.returncode is not None


def _interrupt_once(signum: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, lambda signum, frame: None)  # a second one would cut the first one short
    raise KeyboardInterrupt


def _is_changed(name: str) -> bool:
    return name in OWN_NAMES | COSTLY_NAMES or name.startswith(OWN_PREFIXES)
