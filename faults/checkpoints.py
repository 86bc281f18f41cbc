"""Tries whether a checkpoint of SQLite waits for the thread that writes: `python -m faults.checkpoints FILE`.

It uses the connections of convserver, in one process as a server has it. Prints the name of what is true.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path

import django

WAITS_MS = 200
"""The checkpoint waits no longer for its turn."""


class Checkpoint(StrEnum):
    """What a checkpoint has done while another thread was writing."""

    WAITED = "waited"
    RAN = "ran beside a commit"


def tried(file: Path) -> Checkpoint:
    """Begin a transaction in one thread, and checkpoint in another."""
    from django.db import DatabaseError, connection, transaction

    from conversations.engines.sqlite3 import checkpoints

    def checkpoint() -> Checkpoint:
        try:
            with connection.waiting(WAITS_MS):  # type: ignore[attr-defined]
                checkpoints.copy_committed()
        except DatabaseError:
            return Checkpoint.WAITED
        finally:
            connection.close()
        return Checkpoint.RAN

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE place (number INTEGER)")
    with transaction.atomic(), connection.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute("INSERT INTO place VALUES (1)")
        return pool.submit(checkpoint).result()


if __name__ == "__main__":
    django.setup()
    print(tried(Path(sys.argv[1])))
