"""The catalogue of faults names tests, faults and bugs that exist, and its page is that of its results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from faults import catalogue
from faults.catalogue import ROWS, SUITE
from faults.planted import BUGS
from faults.power.installations import OF_ENGINE
from faults.suite import catalogue_tests, page, planted
from faults.suite.installations import Installation, OnPostgreSQL, OnSQLite
from faults.suite.results import Results

ROOT = Path(__file__).parents[2]
ENGINES: tuple[type[Installation], ...] = (OnSQLite, OnPostgreSQL, *OF_ENGINE.values())


def test_every_row_is_there_once_in_order() -> None:
    assert [row.id for row in ROWS] == [f"FI-{number:02}" for number in range(1, 46)]


def test_every_test_that_is_named_exists(subtests: pytest.Subtests) -> None:
    for test in catalogue_tests.named():
        with subtests.test(test=test):
            file, _, name = test.partition("::")
            assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_every_command_that_is_named_is_one_of_the_makefile() -> None:
    targets = {
        f"make {name}" for name in re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    }
    assert {command for row in ROWS for command in row.commands} <= targets


def test_a_row_without_a_test_says_why() -> None:
    silent = [
        row.id for row in ROWS if not row.is_applicable and not row.elsewhere.startswith("not applicable:")
    ]
    assert silent == []


def test_a_row_names_the_suite_if_a_kind_of_fault_is_about_it() -> None:
    about = {id for engine in ENGINES for kind in planted.all_kinds(engine) for id in kind.rows}
    assert about == {row.id for row in ROWS if SUITE in row.commands}


def test_kinds_of_fault_have_names_of_their_own() -> None:
    for engine in (OnSQLite, OnPostgreSQL):
        names = [kind.name for kind in planted.all_kinds(engine)]
        assert len(names) == len(set(names))


def test_every_bug_has_a_fault_that_must_show_it() -> None:
    assert tuple(dict.fromkeys(proof.bug for proof in planted.PROOFS)) == BUGS
    for proof in planted.PROOFS:
        assert proof.fault in {kind.name for kind in planted.all_kinds(proof.engine)}


def test_the_page_is_that_of_the_last_results(tmp_path: Path) -> None:
    page.write(Results.read(), tmp_path / "page")
    assert (tmp_path / "page").read_text() == page.PAGE.read_text(), "run make faults, or write the page anew"


def test_the_worst_case_of_a_test_is_its_outcome(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.a" name="test_one[x]"/>'
        '<testcase classname="tests.a" name="test_one[y]"><failure/></testcase>'
        '<testcase classname="tests.a" name="test_two[x]"><skipped/></testcase>'
        '<testcase classname="tests.a" name="test_two[y]"/></testsuite></testsuites>'
    )
    assert catalogue_tests.outcomes(report) == {
        "tests/a.py::test_one": "failed",
        "tests/a.py::test_two": "passed",
    }


def test_nothing_is_not_applicable_but_what_cannot_occur() -> None:
    assert [row.id for row in catalogue.ROWS if not row.is_applicable] == ["FI-18"]
