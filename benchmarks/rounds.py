"""One round of measurements on one engine: each limit next to what is compared with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import limits, server
from benchmarks.client import Job
from benchmarks.databases import TEMPLATE_ID, Database, PostgreSQL, SQLite

SHORT, LONG = 100, 100_000
"""Events in a conversation before it is appended to."""
LENGTH_CLIENTS = 4
BATCH = 50
CLIENT_WAIT_S = 180


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int
    append_s: float
    limit_s: int
    echo_s: float
    replays: Sequence[int]


FULL = Plan(rounds=5, append_s=2.0, limit_s=3, echo_s=1.5, replays=(10_000, 100_000))
QUICK = Plan(rounds=2, append_s=1.0, limit_s=1, echo_s=0.7, replays=(10_000, 100_000))

Samples = dict[str, list[float]]
"""By measurement, a value per round: events/s, or MB where the name says so."""


class ClientFailed(RuntimeError):
    """A measurement's clients did not get what they should; the text says what."""


class Rounds:
    """All rounds on one engine, and what they found."""

    def __init__(self, database: Database, plan: Plan, directory: Path) -> None:
        self.samples: Samples = defaultdict(list)
        self._database = database
        self._plan = plan
        self._directory = directory
        self._long: list[str] = []

    def prepare(self) -> None:
        """Let the server make the tables and a first conversation; fill the long ones."""
        with server.convserver(self._database.url, self._directory) as running:
            self._append(running, "", [TEMPLATE_ID], seconds=0.1)
        for events in self._plan.replays:
            self._database.fill(f"replay-{events}", conversations=1, events=events)
        self._long = self._database.fill("long", conversations=LENGTH_CLIENTS, events=LONG)

    def run(self, number: int) -> None:
        """Measure everything once. Raise ClientFailed, LimitFailed or NotServing."""
        with ExitStack() as stack:
            bare = stack.enter_context(server.bare(self._directory))
            running = stack.enter_context(server.convserver(self._database.url, self._directory))
            self._replays(running, bare, number)
            self._single_appends(running, bare, number)
            self._batches(running, number)
            self._lengths(running, number)

    # Replay

    def _replays(self, running: server.Server, bare: server.Server, number: int) -> None:
        """Replay to one reader, memory against that of the fresh server after its first small join."""
        (small,) = self._database.fill(f"small-{number}", conversations=1, events=SHORT)
        self._replay(running, f"/ws/conversations/{small}?after=-1", SHORT)
        memory = server.Memory(running.pid)
        before_mb = memory.now_mb()
        for events in self._plan.replays:
            self._keep(f"bare replay/{events}", self._replay(bare, f"/send/{events}", events))
            with memory.watched():
                rate = self._replay(running, f"/ws/conversations/replay-{events}-0?after=-1", events)
            self._keep(f"replay/{events}", rate)
            self._keep(f"replay memory MB/{events}", memory.peak_mb - before_mb)

    def _replay(self, target: server.Server, path: str, events: int) -> float:
        return _rate(Job(sort="replay", port=target.port, paths=[path], after=[-1], events=events))

    # Appends

    def _single_appends(self, running: server.Server, bare: server.Server, number: int) -> None:
        self._limit("limit/1", clients=1)
        self._fresh_append(running, "append/1", number, clients=1)
        self._limit("limit/16", clients=16)
        self._fresh_append(running, "append/16", number, clients=16)
        self._fresh_append(running, "append/64", number, clients=64)
        self._echo(bare, "echo/64", clients=64)
        self._fresh_append(running, "append write-only/64", number, clients=64, follows=False)

    def _batches(self, running: server.Server, number: int) -> None:
        self._limit("limit beside batches", clients=16)
        self._fresh_append(running, "batch/1", number, clients=1, batch=BATCH)
        self._fresh_append(running, "batch/4", number, clients=4, batch=BATCH)
        self._fresh_append(running, "batch write-only/4", number, clients=4, batch=BATCH, follows=False)

    def _lengths(self, running: server.Server, number: int) -> None:
        """Compare short and long conversations, in turns the one and the other first."""
        for batch, name in ((1, "append"), (BATCH, "batch")):
            for events in (SHORT, LONG) if number % 2 else (LONG, SHORT):
                key = f"{name} at {events}"
                if events == LONG:
                    self._append(running, key, self._long, batch=batch)
                else:
                    self._fresh_append(running, key, number, clients=LENGTH_CLIENTS, batch=batch)

    def _fresh_append(
        self,
        running: server.Server,
        key: str,
        number: int,
        *,
        clients: int,
        batch: int = 1,
        follows: bool = True,
    ) -> None:
        name = f"{key.replace('/', '-').replace(' ', '-')}-{number}"
        ids = self._database.fill(name, conversations=clients, events=SHORT)
        self._append(running, key, ids, batch=batch, follows=follows)

    def _append(
        self,
        running: server.Server,
        key: str,
        ids: Sequence[str],
        *,
        batch: int = 1,
        follows: bool = True,
        seconds: float | None = None,
    ) -> None:
        after = self._database.last_seqs(ids)
        more = "" if follows else "&follow=false"
        job = Job(
            sort="append",
            port=running.port,
            paths=[f"/ws/conversations/{public_id}?after={after[public_id]}{more}" for public_id in ids],
            after=[after[public_id] for public_id in ids],
            batch=batch,
            follows=follows,
            seconds=seconds or self._plan.append_s,
        )
        self._keep(key, _rate(job))

    # Limits

    def _limit(self, key: str, *, clients: int) -> None:
        name = f"{key.replace('/', '-').replace(' ', '-')}-{len(self.samples[key])}"
        self._database.fill(name, conversations=clients, events=SHORT)
        first_pk = self._database.first_pk(name)
        if isinstance(self._database, PostgreSQL):
            rate = limits.pgbench(
                self._database, clients=clients, first_pk=first_pk, seconds=self._plan.limit_s
            )
        else:
            assert isinstance(self._database, SQLite)
            rate = limits.sqlite_loop(self._database, pk=first_pk, seconds=self._plan.limit_s)
        self._keep(key, rate)

    def _echo(self, bare: server.Server, key: str, *, clients: int) -> None:
        job = Job(
            sort="echo",
            port=bare.port,
            paths=["/echo"] * clients,
            after=[-1] * clients,
            follows=False,
            seconds=self._plan.echo_s,
        )
        self._keep(key, _rate(job))

    def _keep(self, key: str, value: float) -> None:
        if key:
            self.samples[key].append(value)


def _rate(job: Job) -> float:
    """Let the clients do the job; return events/s. Raise ClientFailed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.client"],
        input=job.text(),
        capture_output=True,
        text=True,
        cwd=server.ROOT,
        check=False,
        timeout=CLIENT_WAIT_S,
    )
    if done.returncode:
        raise ClientFailed(f"{job.sort} on {job.paths[0]}: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout)["rate"])
