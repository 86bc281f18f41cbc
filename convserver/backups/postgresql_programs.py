"""PostgreSQL's own programs: pg_dump and pg_restore, and whether they are there and new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, cast

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.client import DatabaseClient

from convserver.backups.failures import BackupError

SAID_MAX = 2000  # of what a program complains, at most this many characters are shown
# The parts of a dump: only the second one has rows, and it has nothing but rows and numbers of sequences.
SECTIONS = ("pre-data", "data", "post-data")
# Commands of psql, and a setting that servers before PostgreSQL 17 do not know.
_NOT_FOR_SERVER = re.compile(rb"\\(un)?restrict |SET transaction_timeout = 0;")


def require(connection: BaseDatabaseWrapper, *programs: str) -> None:
    """Raise BackupError unless these programs are installed, and not older than the server."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        server = int(cursor.fetchone()[0]) // 10_000
    for program in programs:
        version = _major(program)
        if version < server:
            raise BackupError(
                f"{program} is of version {version}, but the database is PostgreSQL {server}: install "
                f"postgresql-client-{server}, or run this command where it is installed."
            )


def _major(program: str) -> int:
    path = shutil.which(program)
    if path is None:
        raise BackupError(
            f"{program} is not installed, but a database on PostgreSQL needs it: install the package "
            "postgresql-client, or run this command where it is installed."
        )
    # A program says its version within this time
    version_s = 15.0
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=version_s, check=False)  # noqa: S603
    found = re.search(r"(\d+)", said.stdout)
    if found is None:
        raise BackupError(f"{program} does not say its version: {said.stderr.strip()[:SAID_MAX]}")
    return int(found[1])


def dump(connection: BaseDatabaseWrapper, *, schema: str, snapshot: str, target: Path) -> None:
    """Write a schema, as a snapshot sees it, into a file. Raise BackupError."""
    arguments = ["--format=custom", f"--schema={schema}", f"--snapshot={snapshot}", f"--file={target}"]
    arguments += ["--no-owner", "--no-privileges"]
    command, environment = DatabaseClient.settings_to_cmd_args_env(connection.settings_dict, arguments)
    with _output_of(["pg_dump", *command[1:]], dict(environment or {})):
        pass


def entries_of(dumped: Path) -> list[str]:
    """Return the table of contents of a dump, an entry each. Raise BackupError if it cannot be read."""
    with _output_of(["pg_restore", "--list", str(dumped)]) as listed:
        return listed.read().decode().splitlines()


def load(connection: BaseDatabaseWrapper, dumped: Path, *, schema: str) -> None:
    """Run the statements of a dump, as they are, in the connection's transaction. Raise BackupError.

    The schema must exist. psql could run them as well, but only in a session of its own, and nothing could
    look at what it has loaded before its commit.
    """
    command = ["pg_restore", "--no-owner", "--no-privileges", f"--schema={schema}", "--file=-", str(dumped)]
    with connection.wrap_database_errors, connection.connection.cursor() as cursor:
        for section in SECTIONS:
            with _output_of([*command, f"--section={section}"]) as script:
                _run(cursor, script, has_rows=section == "data")
        cursor.execute("RESET search_path; RESET client_encoding")  # the script has its own


def _run(cursor: psycopg.Cursor, script: IO[bytes], *, has_rows: bool) -> None:
    statements: list[bytes] = []
    for line in script:
        if has_rows and line.startswith(b"COPY "):
            cursor.execute(b"".join(statements))
            statements = []
            with cursor.copy(line) as copy:
                for row in iter(script.readline, b"\\.\n"):
                    if not row:
                        raise BackupError("The dump ends in the middle of a table: choose another backup.")
                    copy.write(row)
        elif not _NOT_FOR_SERVER.match(line):
            statements.append(line)
    cursor.execute(b"".join(statements))


@contextmanager
def _output_of(command: list[str], environment: dict[str, str] | None = None) -> Iterator[IO[bytes]]:
    """Run a program, and return what it writes. Raise BackupError if it fails."""
    with (
        TemporaryFile() as said,
        subprocess.Popen(  # noqa: S603
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
        ) as running,
    ):
        try:
            yield cast(IO[bytes], running.stdout)
        except BaseException:
            running.kill()
            raise
        if running.wait():
            said.seek(0)
            complaint = said.read(SAID_MAX).decode(errors="replace").strip() or "it did not say why."
            raise BackupError(f"{command[0]} failed: {complaint}")
