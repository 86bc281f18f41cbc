"""PostgreSQL's own programs: pg_dump, pg_restore and psql, and whether they are there and new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, cast

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.client import DatabaseClient

from convserver.backups.failures import BackupError

WITHIN_S = 15
"""To say its version."""
SAID_MAX = 2000
"""Of what a program complains, at most this many characters are shown."""
CHUNK_BYTES = 1024 * 1024


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
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=WITHIN_S, check=False)  # noqa: S603
    found = re.search(r"(\d+)", said.stdout)
    if found is None:
        raise BackupError(f"{program} does not say its version: {said.stderr.strip()[:SAID_MAX]}")
    return int(found[1])


def dump(connection: BaseDatabaseWrapper, *, schema: str, snapshot: str, target: Path) -> None:
    """Write a schema, as a snapshot sees it, into a file. Raise BackupError."""
    arguments = ["--format=custom", f"--schema={schema}", f"--snapshot={snapshot}", f"--file={target}"]
    arguments += ["--no-owner", "--no-privileges"]
    _run(*_connecting(connection, "pg_dump", arguments))


def entries_of(dumped: Path) -> list[str]:
    """Return the table of contents of a dump, an entry each. Raise BackupError if it cannot be read."""
    with TemporaryFile() as said:
        _run(["pg_restore", "--list", str(dumped)], {}, stdout=said)
        said.seek(0)
        return said.read().decode().splitlines()


@contextmanager
def script_of(dumped: Path, entries: Sequence[str], workspace: Path) -> Iterator[Iterator[bytes]]:
    """Return the statements that load these entries of a dump, in pieces.

    At the end of the block, raise BackupError unless all of it could be read.
    """
    wanted = workspace / "entries"
    wanted.write_text("\n".join(entries) + "\n")
    command = ["pg_restore", "--no-owner", "--no-privileges", f"--use-list={wanted}", "--file=-", str(dumped)]
    with TemporaryFile() as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as running:  # noqa: S603
        try:
            yield _pieces(cast(IO[bytes], running.stdout))
        except BaseException:
            running.kill()
            raise
        if running.wait():
            raise BackupError(f"pg_restore cannot read {dumped}: {_complaint(said)}")


@contextmanager
def loading(connection: BaseDatabaseWrapper) -> Iterator[IO[bytes]]:
    """Return the input of a psql that stops at the first error.

    The script must begin a transaction and commit it in its last line: if this process is killed, psql finds
    the end of its input and rolls back. Raise BackupError if a statement fails.
    """
    arguments = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]
    arguments += ["--set=VERBOSITY=terse", "--set=SHOW_CONTEXT=never"]  # which would quote rows
    command, environment = _connecting(connection, "psql", arguments)
    environment["PGOPTIONS"] = "-c statement_timeout=0 -c lock_timeout=10s -c client_min_messages=warning"
    with (
        TemporaryFile() as said,
        TemporaryFile() as shown,
        subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=shown, stderr=said, env={**os.environ, **environment}
        ) as running,
    ):
        statements = cast(IO[bytes], running.stdin)
        with suppress(BrokenPipeError):  # it has said why
            try:
                yield statements
            except BrokenPipeError:
                raise
            except BaseException:
                running.kill()
                raise
            finally:
                with suppress(BrokenPipeError):
                    statements.close()
        if running.wait():
            raise BackupError(
                "The backup could not be loaded into the database, which was left as it was: "
                f"{_complaint(said)}"
            )


def _pieces(output: IO[bytes]) -> Iterator[bytes]:
    # The first one has the settings of the session; a server before 17 does not know this one.
    yield output.read(CHUNK_BYTES).replace(b"SET transaction_timeout = 0;\n", b"", 1)
    while piece := output.read(CHUNK_BYTES):
        yield piece


def _connecting(
    connection: BaseDatabaseWrapper, program: str, arguments: list[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs a program on this database, and the variables it needs."""
    command, environment = DatabaseClient.settings_to_cmd_args_env(connection.settings_dict, arguments)
    return [program, *command[1:]], dict(environment or {})


def _run(command: list[str], environment: dict[str, str], stdout: IO[bytes] | None = None) -> None:
    with TemporaryFile() as said:
        code = subprocess.run(  # noqa: S603
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=said,
            check=False,
        ).returncode
        if code:
            raise BackupError(f"{command[0]} failed: {_complaint(said)}")


def _complaint(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read(SAID_MAX).decode(errors="replace").strip() or "it did not say why."
