"""Which fault shows which planted bug: the suite proves that it would notice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from faults.checker.judge import Rule
from faults.power.installations import (
    OF_ENGINE,
    POWER_CUT,
    PostgreSQLOnForgetfulDisk,
    SQLiteOnForgetfulDisk,
    fuse_problem,
)
from faults.suite import crowds, on_both, on_postgresql, on_sqlite, zombies
from faults.suite.fault import Fault
from faults.suite.installations import Installation, OnPostgreSQL, OnSQLite
from faults.suite.rounds import Result, Rounds

TRIES = 5
"""So many rounds at most: a bug need not show each time that something breaks."""
IN_STORE = "wrong in the store"


class Proof(NamedTuple):
    """A bug, what must show it, and by which broken rule."""

    bug: str
    engine: type[Installation]
    fault: str
    shown_by: str


PROOFS = (
    Proof("ack_before_commit", OnSQLite, "server killed (kill -9)", Rule.LOST),
    Proof("fence_off", OnPostgreSQL, zombies.NAME, IN_STORE),
    Proof("seq_reused", OnSQLite, "connections of clients reset", Rule.MOVED),
    Proof("hint_trusted", OnPostgreSQL, "Redis killed and restarted", Rule.READ_GAP),
    Proof("retry_without_key", OnSQLite, "connections of clients reset", Rule.TWICE_CREATED),
    Proof("trigger_gone", OnSQLite, "guard dropped from outside", Rule.LOST),
    Proof("lock_gone", OnPostgreSQL, crowds.NAME, crowds.REFUSED),
    Proof("digest_not_chained", OnSQLite, "connections of clients reset", IN_STORE),
    Proof("commits_not_synced", SQLiteOnForgetfulDisk, POWER_CUT.name, Rule.LOST),
    Proof("commits_not_synced", PostgreSQLOnForgetfulDisk, POWER_CUT.name, Rule.LOST),
)


class Caught(NamedTuple):
    """What became of a planted bug."""

    proof: Proof
    rounds: int
    result: Result

    @property
    def is_caught(self) -> bool:
        """Whether the fault has shown it, by its rule."""
        return bool(self.result.broken[self.proof.shown_by])


def all_faults(engine: type[Installation]) -> list[Fault[Any]]:
    """Return the faults of an installation."""
    if engine in OF_ENGINE.values():
        return [POWER_CUT]
    own: Iterable[Fault[Any]] = on_sqlite.FAULTS if engine is OnSQLite else on_postgresql.FAULTS
    return [*own, *on_both.FAULTS]


@asynccontextmanager
async def started(
    engine: type[Installation], place: Path, *, planted: str | None = None
) -> AsyncIterator[Installation]:
    """Let an installation run in the block."""
    installation = engine(place, planted=planted)
    try:
        await installation.start()
        yield installation
    finally:
        await installation.close()


def caught(rng: random.Random, only: str = "") -> Iterator[Caught]:
    """Plant each bug, and break what must show it."""
    for proof in PROOFS:
        if only not in proof.bug:
            continue
        if proof.engine in OF_ENGINE.values() and (problem := fuse_problem()):
            print(problem)
        else:
            yield asyncio.run(_try(proof, random.Random(rng.random())))


async def _try(proof: Proof, rng: random.Random) -> Caught:
    with TemporaryDirectory(prefix="convserver-planted-") as name:
        async with started(proof.engine, Path(name), planted=proof.bug) as installation:
            rounds, result, tries = Rounds(installation, rng), Result(), 0
            while tries < TRIES and not result.broken[proof.shown_by]:
                tries += 1
                if isinstance(installation, OnPostgreSQL) and proof.fault == zombies.NAME:
                    result.add(await zombies.run(installation, rng))
                elif proof.fault == crowds.NAME:
                    result.add(await crowds.run(installation, rng))
                else:
                    (fault,) = (each for each in all_faults(proof.engine) if each.name == proof.fault)
                    result.add(await rounds.run(fault, 2))
    return Caught(proof, tries, result)
