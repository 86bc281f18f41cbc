"""Locks that another program holds on the tests' database: of SQLite's file, or of a conversation's row."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import OperationalError, connection

from sessions_app.models import ProcessRole
from sessions_app.operation import heartbeats, waits
from tests.support.people.clients import database_url

TOOL = "reporting tool"
_HOLD_FILE = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
file.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_file() -> Iterator[int]:
    """Have another program hold SQLite's file, which this process finds out; return that process."""
    heartbeats.beat(ProcessRole.SERVER)
    arguments = [sys.executable, "-c", _HOLD_FILE, str(connection.settings_dict["NAME"])]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(OperationalError), connection.waiting(0):  # type: ignore[attr-defined]
            heartbeats.beat(ProcessRole.SERVER)
        try:
            yield other.pid
        finally:
            other.communicate("")


@contextmanager
def held_row() -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Have a session hold the row of the conversation `talk`."""
    with psycopg.connect(database_url(), application_name=TOOL) as session:
        session.execute("SELECT id FROM conversations_conversation WHERE public_id = 'talk' FOR UPDATE")
        yield session
        session.rollback()


@contextmanager
def held_lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have another program hold a lock of this engine, which is shown at once."""
    with monkeypatch.context() as patched:
        patched.setattr(waits, "BLOCKED_S", 0.0)
        if connection.vendor == "postgresql":
            patched.setattr(waits, "HELD_S", 0.0)
        with held_row() if connection.vendor == "postgresql" else held_file():
            yield
