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
    SYNCS_FAIL,
    PostgreSQLOnForgetfulDisk,
    SQLiteOnForgetfulDisk,
    fuse_problem,
)
from faults.suite import checkpoints, crowds, leases, on_both, on_postgresql, on_sqlite
from faults.suite.checkpoints import CHECKPOINT_TURN
from faults.suite.crowds import CROWDS
from faults.suite.drill import Drill
from faults.suite.fault import Fault
from faults.suite.installations import Installation, OnPostgreSQL, OnSQLite
from faults.suite.leases import LEASES
from faults.suite.rounds import IN_STORE, Result, Rounds
from faults.suite.stale_logs import STALE_LOG
from faults.suite.zombies import ZOMBIES

TRIES = 5
"""So many rounds at most: a bug need not show each time that something breaks."""
Kind = Fault[Any] | Drill[Any]


class Proof(NamedTuple):
    """A bug, what must show it, and by which broken rule."""

    bug: str
    engine: type[Installation]
    fault: str
    shown_by: str


PROOFS = (
    Proof("ack_before_commit", OnSQLite, "server killed (kill -9)", Rule.LOST),
    Proof("fence_off", OnPostgreSQL, ZOMBIES.name, IN_STORE),
    Proof("seq_reused", OnSQLite, "connections of clients reset", Rule.MOVED),
    Proof("hint_trusted", OnPostgreSQL, "Redis killed and restarted", Rule.READ_GAP),
    Proof("retry_without_key", OnSQLite, "connections of clients reset", Rule.TWICE_CREATED),
    Proof("trigger_gone", OnSQLite, "guard dropped from outside", Rule.LOST),
    Proof("lock_gone", OnPostgreSQL, CROWDS.name, crowds.REFUSED),
    Proof("digest_not_chained", OnSQLite, "connections of clients reset", IN_STORE),
    Proof("start_not_awaited", OnSQLite, "connections of clients reset", Rule.STALE),
    Proof("fork_without_key", OnSQLite, "connections of clients reset", Rule.TWICE_CREATED),
    Proof("digest_of_clear_text", OnSQLite, "connections of clients reset", IN_STORE),
    Proof("ack_before_store", OnSQLite, "connections of clients reset", Rule.STALE),
    Proof("lost_commit_denied", OnPostgreSQL, on_postgresql.LOST_AND_READ_ONLY, Rule.DENIED),
    Proof("lease_ignored", OnPostgreSQL, LEASES.name, leases.REPLACED),
    Proof("checkpoint_without_turn", OnSQLite, CHECKPOINT_TURN.name, checkpoints.BESIDE_A_COMMIT),
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


def all_kinds(engine: type[Installation]) -> list[Kind]:
    """Return the faults and drills of an installation."""
    if engine is SQLiteOnForgetfulDisk:
        return [POWER_CUT, SYNCS_FAIL]
    if engine is PostgreSQLOnForgetfulDisk:
        return [POWER_CUT]
    if engine is OnSQLite:
        own: Iterable[Kind] = (*on_sqlite.FAULTS, CHECKPOINT_TURN, STALE_LOG)
    else:
        own = (*on_postgresql.FAULTS, ZOMBIES, LEASES)
    return [*own, *on_both.FAULTS, CROWDS]


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


async def tried(kind: Kind, rounds: Rounds, times: int) -> Result:
    """Run a round with so many faults of a kind, or a drill."""
    if isinstance(kind, Fault):
        return await rounds.run(kind, times)
    return await kind.run(rounds.installation, rounds.rng)


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
                (kind,) = (each for each in all_kinds(proof.engine) if each.name == proof.fault)
                result.add(await tried(kind, rounds, 2))
    return Caught(proof, tries, result)
