"""Why a backup or a restore was refused or failed."""

from __future__ import annotations

import sqlite3

import psycopg

from conversations.engines import failures

# Classes of PostgreSQL's errors, about values, whose texts may quote them.
QUOTING = ("22", "23")


class BackupError(Exception):
    """A backup or a restore was refused or failed; the text says why and what to do, for people."""


def reason(error: Exception) -> str:
    """Return why a file or a database failed.

    A driver's own text is not in it where it may quote what is stored.
    """
    if isinstance(error, OSError):
        return str(error)
    if found := failures.known(error):
        return found.removesuffix(".")
    cause = error.__cause__ or error
    if isinstance(cause, sqlite3.Error) and hasattr(cause, "sqlite_errorcode"):
        return str(cause)  # SQLite's texts name tables and columns alone
    if isinstance(cause, psycopg.OperationalError) and cause.sqlstate is None:
        return str(cause).strip()  # there is no connection
    if isinstance(cause, psycopg.Error) and cause.sqlstate and cause.sqlstate[:2] not in QUOTING:
        return cause.diag.message_primary or type(cause).__name__
    return type(cause).__name__
