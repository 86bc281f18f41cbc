"""A PostgreSQL database whose sessions begin read-only for a while, as an administrator sets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection
from psycopg import sql

from tests.support.people.clients import database_url


@contextmanager
def read_only(application: str) -> Iterator[None]:
    """Make all sessions of the application read-only: end the open ones, and set it for later ones."""
    begin(application)
    try:
        yield
    finally:
        end(application)


def begin(application: str) -> None:
    """Make the application's sessions read-only until `end`."""
    with psycopg.connect(database_url(), autocommit=True) as outside:
        outside.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(_database())
        )
        _end_sessions(outside, application)


def end(application: str) -> None:
    """Make new sessions able to write, and end the application's others."""
    with psycopg.connect(database_url(), autocommit=True) as outside:
        outside.execute("SET default_transaction_read_only = off")
        outside.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(_database()))
        _end_sessions(outside, application)


def _end_sessions(outside: psycopg.Connection[Any], application: str) -> None:
    outside.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = %s",
        [application],
    )


def _database() -> sql.Identifier:
    return sql.Identifier(str(connection.settings_dict["NAME"]))
