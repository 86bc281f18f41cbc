"""What the engines do by themselves: the same insert and update, with nothing around them."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import event
from benchmarks.databases import PostgreSQL, SQLite

_VARIABLES = {"text": event.COMMAND, "payload": event.PAYLOAD, "digest": event.DIGEST}
_VALUES = event.COLUMNS | {name: f":{name}" for name in _VARIABLES}

PGBENCH_SCRIPT = f"""\\set pk :first + :client_id
WITH head AS (
    UPDATE conversations_conversation
    SET next_seq = next_seq + 1, head_digest = :digest, updated_at = clock_timestamp()
    WHERE id = :pk RETURNING id, next_seq - 1 AS seq
)
INSERT INTO conversations_event
    (conversation_id, seq, event_id, timestamp, received_at, {", ".join(event.COLUMNS)})
SELECT id, seq, {PostgreSQL.new_id}, {PostgreSQL.now}, {PostgreSQL.now}, {", ".join(_VALUES.values())}
FROM head;
"""
"""One statement and one commit an event; each client has a conversation of its own."""


class LimitFailed(RuntimeError):
    """A limit could not be measured; the text says why."""


def pgbench(database: PostgreSQL, *, clients: int, first_pk: int, seconds: int) -> float:
    """Return events/s of `pgbench` on conversations with the primary keys from `first_pk` on."""
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "append.sql"
        script.write_text(PGBENCH_SCRIPT)
        variables = [f"--define={name}={value}" for name, value in {**_VARIABLES, "first": first_pk}.items()]
        done = subprocess.run(
            [
                *("pgbench", "--no-vacuum", "--protocol=prepared", f"--file={script}", *variables),
                *(f"--client={clients}", f"--jobs={min(clients, 2)}", f"--time={seconds}", database.url),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + 60,
        )
    found = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        raise LimitFailed(f"pgbench: {done.stderr[-1000:]}")
    return float(found[1])


def sqlite_loop(database: SQLite, *, pk: int, seconds: float) -> float:
    """Return events/s of one connection that commits each event."""
    connection = database.connect()
    update = (
        f"UPDATE conversations_conversation SET next_seq = next_seq + 1, head_digest = ?, "
        f"updated_at = {SQLite.now} WHERE id = ? RETURNING next_seq - 1"
    )
    insert = (
        f"INSERT INTO conversations_event "
        f"(conversation_id, seq, event_id, timestamp, received_at, {', '.join(event.COLUMNS)}) "
        f"VALUES (?, ?, {SQLite.new_id}, {SQLite.now}, {SQLite.now}, {', '.join(event.COLUMNS.values())})"
    )
    start, count = time.perf_counter(), 0
    while (taken := time.perf_counter() - start) < seconds:
        connection.execute("BEGIN IMMEDIATE")
        ((seq,),) = connection.execute(update, (event.DIGEST, pk)).fetchall()
        connection.execute(insert, (pk, seq))
        connection.execute("COMMIT")
        count += 1
    connection.close()
    return count / taken
