"""Runs the tests that the catalogue names, and says what became of each."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from faults.catalogue import ROWS
from faults.programs import ROOT

WORST_FIRST = ("failed", "skipped", "passed")


def named() -> list[str]:
    """Return the tests of the catalogue, each once."""
    return sorted({test for row in ROWS for test in row.tests})


def run() -> dict[str, str]:
    """Run them on the engine that DATABASE_URL names, SQLite by default; return the outcome of each.

    `not run` is the outcome of a test that pytest has not found.
    """
    with TemporaryDirectory(prefix="convserver-catalogue-") as place:
        report = Path(place) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *named()]
        subprocess.run(command, cwd=ROOT, check=False)
        found = outcomes(report) if report.exists() else {}
    return {test: found.get(test, "not run") for test in named()}


def outcomes(report: Path) -> dict[str, str]:
    """Return the outcome of each test of a report; that of its worst case, if it has several."""
    found: dict[str, str] = {}
    for name, outcome in _cases(report):
        before = found.get(name, outcome)
        is_skipped_somewhere = {before, outcome} == {"skipped", "passed"}
        worst = min(before, outcome, key=WORST_FIRST.index)
        found[name] = "passed" if is_skipped_somewhere else worst
    return found


def _cases(report: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(report).iter("testcase"):
        place = case.get("classname", "").replace(".", "/")
        name = re.sub(r"\[.*", "", case.get("name", ""), flags=re.DOTALL)
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        yield f"{place}.py::{name}", outcome
