"""Faults of a database in a file."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from faults.suite.fault import Fault, hold
from faults.suite.installations import OnSQLite


async def fill_disk(installation: OnSQLite, rng: random.Random) -> None:
    """Leave no room on the disk, for a while."""
    ballast = installation.data / "ballast"
    try:
        await asyncio.to_thread(_fill, ballast)
        await hold(rng, 0.5, 1.5)
    finally:
        ballast.unlink(missing_ok=True)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for size in (1024 * 1024, 4096):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass


async def make_read_only(installation: OnSQLite, rng: random.Random) -> None:
    """Take the right to write from the files, for a while."""
    try:
        for each in installation.files():
            each.chmod(0o444)
        await hold(rng, 0.5, 1.5)
    finally:
        for each in installation.files():
            each.chmod(0o600)


def take_away(put: Callable[[Path, Path], None]) -> Callable[[OnSQLite, random.Random], Awaitable[None]]:
    """Return a fault that takes the files from their path, lets `put` act there, and puts them back."""

    async def inject(installation: OnSQLite, rng: random.Random) -> None:
        kept = installation.data / "kept"
        kept.mkdir()
        files = installation.files()
        for each in files:
            (kept / each.name).hardlink_to(each)
        try:
            put(installation.file, kept)
            await hold(rng, 0.3, 1.2)
        finally:
            for each in installation.files():
                each.unlink()
            for each in files:
                (kept / each.name).rename(each)
            kept.rmdir()

    return inject


def _remove(file: Path, kept: Path) -> None:
    for each in kept.iterdir():
        (file.parent / each.name).unlink(missing_ok=True)


def _replace(file: Path, kept: Path) -> None:
    """Let a copy of the database, as a backup makes it, stand in its place."""
    copy = file.with_name("copy")
    copied(file, copy)
    copy.replace(file)


def copied(file: Path, copy: Path) -> None:
    """Copy a database as a backup does."""
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


async def lock_file(installation: OnSQLite, rng: random.Random) -> None:
    """Let another program hold the lock of the file."""
    with installation.connected() as other:
        other.execute("BEGIN IMMEDIATE")
        await hold(rng, 0.5, 2.0)
        other.execute("ROLLBACK")


FAULTS: list[Fault[OnSQLite]] = [
    Fault(name="disk full", rows=("FI-06",), inject=fill_disk),
    Fault(name="files made read-only", rows=("FI-06", "FI-32"), inject=make_read_only),
    Fault(name="files removed, and put back", rows=("FI-32",), inject=take_away(_remove)),
    Fault(name="file replaced by a copy, and put back", rows=("FI-32",), inject=take_away(_replace)),
    Fault(name="file locked by another program", rows=("FI-32",), inject=lock_file),
]
