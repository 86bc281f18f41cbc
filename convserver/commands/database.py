"""The database that a command uses: reached, upgraded, recorded, and named where it fails."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import django
import psycopg
from django.conf import settings
from django.core.checks import Tags
from django.core.management import CommandError, call_command
from django.db import Error as DatabaseProblem
from django.db import connection
from django.db.models.signals import post_migrate

from conversations.engines import failures
from conversations.engines.postgresql import poolers
from conversations.engines.sqlite3 import checkpoints, files
from convserver import last_database, private_files, program
from convserver.variables import ConfigurationError
from sessions_app.capacity import heap

SHARED_SESSIONS = (
    "DATABASE_URL leads to a connection pooler in transaction mode, which loses the settings, locks and "
    "notifications of sessions: name PostgreSQL itself, or a pool in session mode."
)


def prepare() -> None:
    """Connect to the database, upgrade it and check it. Raise ConfigurationError with one sentence."""
    with named_in_errors():
        reach()
    try:
        is_new = has_no_tables()
        _migrate()
        record(is_new=is_new)
        checkpoints.begin_mark()
        # Only these depend on where it runs; the others would import every page and every route.
        call_command(
            "check", tags=[Tags.database], databases=["default"], fail_level="ERROR", stdout=io.StringIO()
        )
    except CommandError as error:
        raise ConfigurationError(f"The server cannot start: {' '.join(str(error).split())}") from error
    except DatabaseProblem as error:
        sentence = failures.sentence(error, connection)
        raise ConfigurationError(f"The server cannot start: {sentence}") from error


def _migrate() -> None:
    """Apply the migrations that are missing, and forget the models of the past that this has made."""
    applied: list[Any] = []

    def note(plan: list[Any], **_: Any) -> None:
        applied.extend(plan)

    # `migrate` says nothing by its result; only this signal has what was applied.
    post_migrate.connect(note)
    try:
        call_command("migrate", verbosity=0, interactive=False)
    finally:
        post_migrate.disconnect(note)
    if applied:  # models of each past state, which refer to each other, so that nothing else frees them
        gc.collect()
        heap.trim()


@contextmanager
def named_in_errors() -> Iterator[None]:
    """Raise ConfigurationError with one sentence for every failure of the database."""
    try:
        yield
    except DatabaseProblem as error:
        if failures.known(error, connection) == failures.FULL:
            raise ConfigurationError(f"The server cannot start: {failures.FULL}") from error
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigurationError(f"DATABASE_URL names a database that cannot be used: {reason}.") from error


def reach() -> None:
    """Connect once without the pool, which would try again for seconds. Raise ConfigurationError."""
    make_data_dir()
    if connection.vendor == "sqlite":
        if not files.can_be_written(str(connection.settings_dict["NAME"])):
            raise ConfigurationError(f"The server cannot start: {files.READ_ONLY}")
        connection.ensure_connection()
    if connection.vendor == "postgresql":
        with connection.wrap_database_errors:
            if poolers.shares_sessions(lambda: psycopg.connect(**connection.get_connection_params())):
                raise ConfigurationError(SHARED_SESSIONS)


def has_no_tables() -> bool:
    """Return whether the database can be reached and was never migrated."""
    try:
        return "django_migrations" not in connection.introspection.table_names()
    except DatabaseProblem:
        return False


def lacks_tables() -> bool:
    """Return whether the database was never migrated; False also for one that cannot be reached."""
    django.setup()
    try:
        reach()
    except (ConfigurationError, DatabaseProblem):  # the command itself says what is wrong
        return False
    return has_no_tables()


def say_to_migrate() -> int:
    """Tell the operator to migrate first, and return the exit status of a command that cannot run."""
    name = connection.settings_dict["NAME"]
    sys.stderr.write(
        f"There is no database at {name} yet. Run this first: {program.command()} manage migrate\n"
    )
    return 1


def record(*, is_new: bool) -> None:
    """Record in the data directory which database was used."""
    last_database.record(last_database.name_of(connection), settings.CONFIGURATION.data_dir, is_new=is_new)


def lift_time_limits() -> None:
    """Lift the time limit of statements, which is meant for requests: a command may read a whole table."""
    options = settings.DATABASES["default"]["OPTIONS"]
    if "pool" in options:
        options["options"] += " -c statement_timeout=0 -c lock_timeout=0"


def make_data_dir() -> None:
    """Create the directory of SQLite's file if it is the data directory."""
    database, data_dir = sqlite_file(), settings.CONFIGURATION.data_dir
    if database is not None and database.parent == data_dir:
        with suppress(OSError):  # opening the file reports it in a sentence
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)


def protect_files() -> None:
    """Allow only the owner to read the files of the data directory and of SQLite."""
    private_files.protect(settings.CONFIGURATION.data_dir, sqlite_file())


def sqlite_file() -> Path | None:
    """Return the path of SQLite's file; None on PostgreSQL."""
    database = settings.DATABASES["default"]
    return Path(database["NAME"]) if "sqlite" in database["ENGINE"] else None
