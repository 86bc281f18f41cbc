"""The second try of failed tests: each runs once more, alone, after all others.

A busy machine can fail a test once. A test of locks, fences, loss or doubles looks for what happens seldom:
it is marked with `no_second_try`, and its failure is final.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

import pytest

from tests.support.runner.file_queue import ROOT
from tests.support.runner.suite_run import NO_SECOND_TRY, Outcome

TRIED_AT_MOST = 10
"""If more tests fail, the code is broken, and no test runs again."""
FLAKY_AT_MOST = 3
"""If more tests are flaky, the run fails."""

FLAKY_FILE = ROOT / "test-results" / "flaky.txt"
"""Gets one line for each flaky test, and keeps those of earlier runs."""

Outcomes = Mapping[str, Sequence[Outcome]]
"""The outcomes of all runs, by their engines."""
TryAgain = Callable[[str, str], Outcome]
"""Runs one test; takes its engines and its name."""


def after(outcomes: Outcomes, try_again: TryAgain) -> Outcomes:
    """Run each failed test once more; return the outcomes, in which a test that passes now is flaky.

    If one failure is final, the run has failed, and no test runs again.
    """
    runs = list(chain.from_iterable(outcomes.values()))
    if not any(run.exit_code for run in runs):
        return outcomes
    if reason := _final(runs):
        print(f"\nNo failed test runs again: {reason}.", flush=True)
        return outcomes
    return {
        engines: [_after_second_tries(run, engines, try_again) for run in found]
        for engines, found in outcomes.items()
    }


def are_too_many_flaky(outcomes: Outcomes) -> bool:
    """Return whether flaky tests alone fail the run."""
    return sum(len(run.flaky) for run in chain.from_iterable(outcomes.values())) > FLAKY_AT_MOST


def _final(runs: Sequence[Outcome]) -> str | None:
    """Return why the failures of these runs are final; None if every failed test may run again."""
    for run in runs:
        if run.exit_code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            return "a run of pytest broke off"
        # The code alone does not say which tests could run again.
        if run.exit_code and not run.failures:
            return "a run of pytest failed without a failed test"
    count = sum(run.failed for run in runs)
    if count > TRIED_AT_MOST:
        return f"{count} went wrong, and at most {TRIED_AT_MOST} run again"
    final = sorted({test for run in runs for test in run.failures if test not in run.repeatable})
    if final:
        return f"final by the mark {NO_SECOND_TRY}, an error of the session or -x: {', '.join(final)}"
    return None


def _after_second_tries(run: Outcome, engines: str, try_again: TryAgain) -> Outcome:
    """Run the failed tests of a run again; return its outcome with those that pass now as flaky."""
    flaky = {}
    for test, what in run.failures.items():
        second = try_again(engines, test)
        # A test that is skipped or not found has not passed.
        if second.exit_code == pytest.ExitCode.OK and second.ran:
            flaky[test] = what
            _append(f"{datetime.now(UTC).isoformat(timespec='seconds')} {engines}: {test}: {what}")
    failures = {test: what for test, what in run.failures.items() if test not in flaky}
    exit_code = run.exit_code if failures else int(pytest.ExitCode.OK)
    return replace(run, exit_code=exit_code, failures=failures, flaky=flaky)


def _append(line: str) -> None:
    """Append a line to the file of flaky tests."""
    FLAKY_FILE.parent.mkdir(exist_ok=True)
    with FLAKY_FILE.open("a", encoding="utf-8", errors="backslashreplace") as file:
        print(line, file=file)
