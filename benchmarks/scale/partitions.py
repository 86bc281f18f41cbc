"""A copy of a filled database whose log is in partitions: whether that can be done, and what it costs.

The statements are those that docs/scale.md describes (`partitioning/`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import server
from benchmarks.databases import DATABASE_URL, PostgreSQL
from benchmarks.scale import queries

STEPS = Path(__file__).resolve().parent / "partitioning"
MIGRATE_WAIT_S = 120
_EVENT = "conversations_event"
_PARTITION = f"{_EVENT}_p07"
_REFUSED = (
    *(f"UPDATE {table} SET hidden = hidden" for table in (_EVENT, _PARTITION)),
    *(f"DELETE FROM {table}" for table in (_EVENT, _PARTITION)),
    *(f"TRUNCATE {table}" for table in (_EVENT, _PARTITION)),
)


class NotRefused(RuntimeError):
    """A statement that a guard must refuse was carried out."""


def measured(database: PostgreSQL, directory: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Return how long the copy took, and the latencies of both forms. Raise NotRefused or ClientFailed."""
    copy = PostgreSQL(DATABASE_URL, f"{database.name}_partitioned", template=database.name)
    try:
        seconds = {step: _run(copy, step) for step in ("1_create", "2_copy", "3_switch")}
        _migrate(copy, directory)
        seconds["4_guard_partitions"] = _run(copy, "4_guard_partitions")
        _require_guards(copy)
        say(f"{copy.name}: partitioned; asking")
        both = {"one table": database, "32 partitions": copy}
        ((events,),) = copy.execute(f"SELECT COUNT(*) FROM {_EVENT}")
        return {
            "events": int(events),
            "seconds": seconds,
            "ms": queries.latencies_ms(both, directory, indexed=list(both)),
            "appends/s": queries.appends_per_s(both, directory),
        }
    finally:
        copy.remove()


def _run(database: PostgreSQL, step: str) -> float:
    """Carry out a step and return how many seconds it took."""
    statements = (STEPS / f"{step}.sql").read_text(encoding="utf-8").encode()
    began = time.monotonic()
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(statements)
    return time.monotonic() - began


def _migrate(database: PostgreSQL, directory: Path) -> None:
    """Let the server's command put the guards on the new table."""
    subprocess.run(
        [sys.executable, "-m", "convserver", "manage", "migrate"],
        cwd=server.ROOT,
        env=os.environ | {"DATABASE_URL": database.url, "CONVSERVER_DATA_DIR": str(directory)},
        check=True,
        capture_output=True,
        timeout=MIGRATE_WAIT_S,
    )


def _require_guards(database: PostgreSQL) -> None:
    """Raise NotRefused unless the table and a partition refuse what the guards refuse."""
    for statement in _REFUSED:
        try:
            database.execute(statement, "SELECT 1")
        except psycopg.errors.RaiseException:
            continue
        raise NotRefused(statement)
