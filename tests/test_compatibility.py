"""docs/compatibility.md has a row for every known defect, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "compatibility.md").read_text()

DEFECTS = {
    *(f"L{number}" for number in range(1, 17)),
    *(f"S{number}" for number in range(1, 18)),
    *(f"A{number}" for number in range(1, 17)),
}


def test_every_defect_has_one_row_that_names_a_test_or_says_why_it_cannot_occur() -> None:
    rows = re.findall(r"^\| ([LSA]\d+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == sorted(DEFECTS)
    unshown = [
        name
        for name, guarantee, shown_by in rows
        if "test_" not in shown_by
        and not re.search("cannot occur|compared in constant time|not built yet", guarantee)
    ]
    assert not unshown


def test_every_test_that_the_page_names_exists() -> None:
    files = {path.name: path.read_text() for path in TESTS.glob("*.py")}
    defined = set(re.findall(r"^(?:async )?def (test_\w+)", "\n".join(files.values()), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+(?:\.py)?)`", PAGE))
    assert named - defined - files.keys() == set()
