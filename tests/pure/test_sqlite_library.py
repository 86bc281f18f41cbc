"""Which library of SQLite a process uses: none that can lose a commit, where there is another."""

from __future__ import annotations

import subprocess
import sys

import pytest

from conversations.engines.sqlite3 import library

AFFECTED = ("3.7.0", "3.40.1", "3.44.5", "3.45.0", "3.46.1", "3.50.6", "3.51.2", "3.52.0")
CORRECTED = ("3.6.23", "3.44.6", "3.50.7", "3.50.12", "3.51.3", "3.53.0", "3.53.4", "3.60.0", "4.0.0")
BLOCKED = "import sys; sys.modules['pysqlite3'] = None"
VERSIONS = (
    "import sqlite3, django.db.backends.sqlite3.base as base;"
    "print(sqlite3.sqlite_version, base.Database.sqlite_version)"
)
WEAKNESS = "from conversations.engines.sqlite3 import library; print(library.weakness())"


def printed(*statements: str) -> str:
    """Return what a new interpreter prints."""
    command = [sys.executable, "-c", ";".join(statements)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_versions_with_the_defect_are_known() -> None:
    assert all(map(library.is_affected, AFFECTED))
    assert not any(map(library.is_affected, CORRECTED))


def test_a_process_takes_a_library_without_the_defect_and_django_takes_the_same() -> None:
    pytest.importorskip("pysqlite3", reason="there is no wheel of pysqlite3 for this platform")
    version, of_django = printed("import convserver", VERSIONS).split()
    assert version == of_django
    assert not library.is_affected(version)


def test_without_another_library_the_interpreters_own_is_used_and_its_defect_named() -> None:
    own = printed(VERSIONS).split()[0]
    assert printed(BLOCKED, "import convserver", VERSIONS).split() == [own, own]
    said = printed(BLOCKED, "import convserver", WEAKNESS)
    assert said.startswith(f"SQLite {own} can lose a commit") if library.is_affected(own) else said == "None"


def test_a_library_that_django_uses_already_stays_and_its_defect_is_named() -> None:
    """Two libraries in one process would lose each other's locks."""
    first = "import django.db.backends.sqlite3.base"
    own, of_django = printed(first, "import convserver", VERSIONS).split()
    assert own == of_django
    said = printed(first, "import convserver", WEAKNESS)
    assert said.startswith(f"SQLite {own} can lose a commit") if library.is_affected(own) else said == "None"
