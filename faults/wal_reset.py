"""Provokes the loss that SQLite before 3.51.3 admits: a checkpoint begins while a commit begins the log anew.

A process checkpoints without a pause. It is stopped at a moment drawn at random, another connection commits
meanwhile, and it continues. A library with the defect takes what is in the new log for copied, and the next
commits are gone when the log is begun anew once more.

Run as `python -m faults.wal_reset TRIES [--own]`; prints JSON. With `--own` the interpreter's own library is
tried instead of the one that convserver uses.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from conversations.engines.sqlite3 import library

NAME = "checkpoint against commit"
ROWS = 8
FILLER = "x" * 3500
"""Each row has a page of its own."""
COMMITS = 6
"""As many before the checkpoint begins as it takes to hide the next ones."""
HEAD_START = range(300, 700)
"""Steps of a counter between the start of a checkpoint and its stop: some microseconds to some ten."""
LOCK_WAIT_S = 60.0
LIBRARY = "sqlite3"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """What came of the tries with one library."""

    version: str
    tries: int
    lost: int
    """Commits that are not in the file once everything was closed; the first such loss ends the tries."""


def tried_with_each(tries: int) -> list[Tried]:
    """Try the library that convserver uses, and the interpreter's own if that one has the defect."""
    used = tried(tries, own=False)
    own = tried(0, own=True)
    has_defect = own.version != used.version and library.is_affected(own.version)
    return [used, tried(tries, own=True)] if has_defect else [used]


def tried(tries: int, *, own: bool) -> Tried:
    """Try a library in a process of its own: one process has one library."""
    command = [sys.executable, "-m", "faults.wal_reset", str(tries), *["--own"] * own]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    return Tried(**json.loads(ended.stdout))


def main(arguments: Sequence[str] | None = None) -> int:
    """Try it in this process."""
    parser = argparse.ArgumentParser(prog="python -m faults.wal_reset")
    parser.add_argument("tries", type=int)
    parser.add_argument("--own", action="store_true", help="the interpreter's own library")
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args(arguments)
    if asked.own:
        for name in (LIBRARY, f"{LIBRARY}.dbapi2"):  # which `faults` has chosen
            sys.modules.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="convserver-wal-") as place:
        print(json.dumps(asdict(_tried(Path(place, "raced"), asked.tries, random.Random(asked.seed)))))
    return 0


def _tried(file: Path, tries: int, rng: random.Random) -> Tried:
    _make(file)
    stored = [0] * ROWS
    done = missing = 0
    with _checkpointing(file) as pid:
        writer, reader = _connected(file), _connected(file)  # no copy of this process has them
        while done < tries and not missing:
            done += 1
            _race(pid, writer, stored, rng)
            missing = _missing(reader, stored)
    writer.close()
    reader.close()  # the last one copies what it takes for the rest of the log, and removes the log
    again = _connected(file)
    lost = _missing(again, stored)
    again.close()
    return Tried(version=import_module(LIBRARY).sqlite_version, tries=done, lost=lost)


def _race(pid: int, writer: Any, stored: list[int], rng: random.Random) -> None:
    """Begin the log anew by a commit just after a checkpoint has begun, and commit until it is so again."""
    os.kill(pid, signal.SIGSTOP)
    for _ in range(COMMITS):
        _commit(pid, writer, stored)
    os.kill(pid, signal.SIGCONT)
    for _ in range(rng.choice(HEAD_START)):
        pass
    os.kill(pid, signal.SIGSTOP)
    _commit(pid, writer, stored)
    os.kill(pid, signal.SIGCONT)
    for _ in range(HEAD_START.start):
        pass
    for _ in range(COMMITS + 1):
        _commit(pid, writer, stored)


def _commit(pid: int, writer: Any, stored: list[int]) -> None:
    """Give the next row the next number, and note that it is stored."""
    number = max(stored) + 1
    give_up_at = time.monotonic() + LOCK_WAIT_S
    while time.monotonic() < give_up_at:
        try:
            writer.execute("UPDATE place SET number = ? WHERE id = ?", (number, number % ROWS))
        except import_module(LIBRARY).OperationalError:
            os.kill(pid, signal.SIGCONT)  # it was stopped with a lock that this needs
            time.sleep(0)
        else:
            stored[number % ROWS] = number
            return
    raise RuntimeError("The checkpoints keep their lock.")


def _missing(reader: Any, stored: list[int]) -> int:
    found = [number for (number,) in reader.execute("SELECT number FROM place ORDER BY id").fetchall()]
    return sum(number != expected for number, expected in zip(found, stored, strict=True))


def _make(file: Path) -> None:
    writer = _connected(file)
    writer.execute("CREATE TABLE place (id INTEGER PRIMARY KEY, number INTEGER, filler TEXT)")
    writer.executemany("INSERT INTO place VALUES (?, 0, ?)", [(each, FILLER) for each in range(ROWS)])
    writer.close()


def _connected(file: Path) -> Any:
    connection = import_module(LIBRARY).connect(file, isolation_level=None, timeout=0)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = OFF")  # what is lost here is not lost by a power cut
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    return connection


@contextmanager
def _checkpointing(file: Path) -> Iterator[int]:
    """Run a copy of this process that checkpoints without a pause; yield its number."""
    pid = os.fork()
    if not pid:
        connection = _connected(file)
        while True:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main())
