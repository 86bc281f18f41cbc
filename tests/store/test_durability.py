"""Settings under which a power cut could lose what was acknowledged are warned about."""

from __future__ import annotations

import os
import socket
import sqlite3

import pytest
from django.db import connection

from conversations.engines.durability import check_durability, weaknesses
from conversations.engines.sqlite3 import library
from tests.conftest import on_postgresql

pytestmark = pytest.mark.no_second_try


def test_the_settings_of_this_project_are_durable(database: None) -> None:
    assert [each for each in weaknesses(connection) if each != library.weakness()] == []


def test_a_library_that_can_lose_a_commit_is_warned_about(
    database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.46.1")
    found = check_durability(databases=["default"])
    if connection.vendor == "postgresql":
        assert found == []
    else:
        assert [warning.id for warning in found] == ["conversations.W001"]
        assert "SQLite 3.46.1 can lose a commit" in found[0].msg


def test_a_weaker_setting_is_warned_about(database: None) -> None:
    with connection.cursor() as cursor:
        weak = "PRAGMA synchronous=OFF" if connection.vendor == "sqlite" else "SET synchronous_commit=off"
        cursor.execute(weak)
    *_, warning = check_durability(databases=["default"])
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("RESET synchronous_commit")  # the pool gives the session to whoever asks next
    connection.close()
    assert warning.id == "conversations.W001"


@on_postgresql
def test_no_statement_and_no_idle_transaction_keeps_a_connection_for_ever(database: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        (statement,) = cursor.fetchone()
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        (idle,) = cursor.fetchone()
    assert (statement, idle) == ("1min", "1min")


@on_postgresql
def test_a_connection_to_a_host_that_is_gone_is_given_up(database: None) -> None:
    connection.ensure_connection()
    with socket.socket(fileno=os.dup(connection.connection.pgconn.socket)) as used:
        if used.family == socket.AF_UNIX:
            pytest.skip("no network lies between")
        asked = used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle_s = used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        unconfirmed_ms = used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert (asked, idle_s, unconfirmed_ms) == (1, 30, 30_000)
