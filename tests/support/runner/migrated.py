"""Databases of a test's own that need no migration: copies of one that has all tables and nobody's rows.

To migrate an empty database computes for seconds, and many tests are about something else.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from django.conf import settings
from django.db import connection, connections
from psycopg import sql


def keep() -> None:
    """Copy this run's database, which was migrated just now, for `make`."""
    connections.close_all()
    if connection.vendor == "sqlite":
        _copy_file(_own(), _kept())
    else:
        pooled: Any = connection
        pooled.close_pool()  # whoever is connected keeps a database from being copied
        _administer("CREATE DATABASE {} TEMPLATE {}", _kept(), _own())


def forget() -> None:
    if connection.vendor == "sqlite":
        Path(_kept()).unlink()
    else:
        _administer("DROP DATABASE {} WITH (FORCE)", _kept())


def make(name: str) -> None:
    """Make a database of this engine: `name` is the path of a file, or what PostgreSQL calls it."""
    if connection.vendor == "sqlite":
        Path(name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy_file(_kept(), name)
    else:
        _administer("CREATE DATABASE {} TEMPLATE {}", name, _kept())


def kept(own: str) -> str:
    """Return what the copy of a run's own database is called."""
    return f"{own}_migrated"


def _own() -> str:
    return str(connection.settings_dict["NAME"])


def _kept() -> str:
    return kept(_own())


def _copy_file(source: str, target: str) -> None:
    with closing(sqlite3.connect(source)) as there, closing(sqlite3.connect(target)) as here:
        there.backup(here)
    Path(target).chmod(0o600)


def _administer(statement: LiteralString, *names: str) -> None:
    with psycopg.connect(settings.CONFIGURATION.database_url, autocommit=True) as outside:
        outside.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
