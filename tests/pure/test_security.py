"""docs/threat-model.md: every promise names tests, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_engine

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs" / "threat-model.md").read_text()
PROMISES = [line for line in TEXT.splitlines() if re.match(r"\| (?!attempt|-)", line)]
NAME = re.compile(r"`(test_\w+)`")


def test_every_test_that_is_named_exists() -> None:
    code = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    written = set(re.findall(r"^(?:async )?def (test_\w+)\(", code, re.MULTILINE))
    assert set(NAME.findall(TEXT)) <= written


def test_every_promise_names_a_test() -> None:
    assert len(PROMISES) > 20
    assert [line for line in PROMISES if not NAME.search(line)] == []
