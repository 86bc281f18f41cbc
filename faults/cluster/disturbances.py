"""What is broken during the drill, when, and how long others need to take over."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import psycopg

from faults.instances import OWN_NAME, PostgreSQL, Redis
from faults.programs import Program

KILL_EVERY_S = 6.0
"""A worker is killed about this often."""
BETWEEN_FREEZES_S = 30.0
"""So long after one worker was stopped past its lease another one is: a cluster needs time to recover."""
AWAY_S = 1.0
"""A process that was killed is started again about this much later."""
JOBS_EVERY_S = 5.0
LEASE_S = 15.0
FROZEN_S = LEASE_S + 4.0
LOOK_S = 0.05
TAKEOVER_WAIT_S = 300.0

KILLED, FROZEN = "a worker was killed", "a worker was stopped past its lease, and continued"
PROMISED_S = {KILLED: 5.0, FROZEN: LEASE_S + 5.0}
"""Within this time others take over, on a machine that is not overloaded."""
WEB, JOBS = "a server was killed", "the jobs were deleted"
RESTARTED, FLUSHED = "Redis was restarted", "Redis was flushed"
TERMINATED = "all connections to PostgreSQL were terminated"

_HELD = """
    SELECT conversation_id, epoch, turn_id FROM sessions_app_agentloop
    WHERE owner_pid = %s AND lease_expires_at > now() AND turn_id IS NOT NULL AND status = 'running'
"""
_LEFT = """
    SELECT l.conversation_id FROM sessions_app_agentloop l
    JOIN unnest(%s::bigint[], %s::bigint[], %s::text[]) AS was(pk, epoch, turn) ON was.pk = l.conversation_id
    WHERE l.epoch = was.epoch AND l.turn_id = was.turn
"""


@dataclass(slots=True)
class Record:
    """What was done, and how long it took until somebody else had the turns of a worker that was gone."""

    counts: Counter[str] = field(default_factory=Counter)
    takeovers: dict[str, list[float]] = field(default_factory=lambda: {KILLED: [], FROZEN: []})
    """Seconds for each turn that was under way, by what had become of its worker."""
    never: int = 0
    """Turns that nobody took over within TAKEOVER_WAIT_S."""
    busy: float = 0.0
    """The part of the machine's time that was in use."""


class Disturbances:
    """Breaks the cluster in a seeded order until it is told to end."""

    def __init__(
        self,
        rng: random.Random,
        workers: Sequence[Program],
        servers: Sequence[Program],
        postgresql: PostgreSQL,
        redis: Redis | None,
        seconds: float,
    ) -> None:
        self._rng = rng
        self._workers = workers
        self._servers = servers
        self._postgresql = postgresql
        self._redis = redis
        self._seconds = seconds
        self._watching: list[asyncio.Task[None]] = []
        self._choosing = asyncio.Lock()
        """One at a time chooses a worker and does something to it."""
        self.record = Record()

    async def run(self) -> None:
        """Break one thing after the other, for `seconds`; then everything runs again."""
        works: list[Awaitable[None]] = [
            self._kill_workers(),
            self._freeze_workers(),
            self._delete_jobs(),
            self._at((0.3, 0.7), self._kill_server),
            self._at((0.4, 0.8), self._terminate),
        ]
        if self._redis is not None:
            works += [
                self._at((0.2, 0.6), self._restart_redis),
                self._at((0.5,), self._flush_redis),
            ]
        await asyncio.gather(*works)
        for program in (*self._workers, *self._servers):
            program.start()
        await asyncio.gather(*self._watching)

    async def _at(self, moments: Sequence[float], act: Callable[[], Awaitable[None]]) -> None:
        """Do it at these parts of the time, and a little later or earlier."""
        began = time.monotonic()
        for moment in moments:
            at = began + self._seconds * (moment + self._rng.uniform(-0.05, 0.05))
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            await act()

    async def _every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        until = time.monotonic() + self._seconds
        while True:
            pause = self._rng.uniform(0.6, 1.4) * seconds
            if time.monotonic() + pause > until:
                return
            await asyncio.sleep(pause)
            await act()

    async def _kill_workers(self) -> None:
        await self._every(KILL_EVERY_S, self._kill_worker)

    async def _kill_worker(self) -> None:
        """Kill a worker that plays turns: on a slow machine one that still starts would never get to that."""
        async with self._choosing:
            playing = await self._playing()
            if not playing or len(self._alive()) < 2:
                return
            worker = self._rng.choice([each for each, _ in playing])
            self.record.counts[KILLED] += 1
            await self._watch(worker, KILLED)
            await asyncio.to_thread(worker.kill)
        await asyncio.sleep(self._rng.uniform(0.5, 1.5) * AWAY_S)
        worker.start()

    async def _freeze_workers(self) -> None:
        """Stop one worker after the other, the first soon: each takes longer than its lease."""
        until = time.monotonic() + self._seconds
        await asyncio.sleep(self._rng.uniform(0.05, 0.1) * self._seconds)
        while time.monotonic() + FROZEN_S < until:
            worker = await self._freeze_worker()
            if worker is None:
                await asyncio.sleep(LOOK_S)
                continue
            await asyncio.sleep(FROZEN_S)
            worker.thaw()
            await asyncio.sleep(BETWEEN_FREEZES_S)

    async def _freeze_worker(self) -> Program | None:
        """Stop the worker that plays the most turns; return None if none plays any."""
        async with self._choosing:
            playing = await self._playing()
            if not playing:
                return None
            worker, _ = max(playing, key=lambda pair: pair[1])
            worker.freeze()
            # What it played may have ended before it was stopped, and then there is nothing to take over.
            if await self._watch(worker, FROZEN):
                self.record.counts[FROZEN] += 1
                return worker
            worker.thaw()
            return None

    def _alive(self) -> list[Program]:
        return [each for each in self._workers if each.is_running and not each.is_frozen]

    async def _playing(self) -> list[tuple[Program, int]]:
        """Return the workers that play turns, and how many."""
        counted = [(each, len(await self._held(each))) for each in self._alive()]
        return [(each, count) for each, count in counted if count]

    async def _held(self, worker: Program) -> list[tuple[object, ...]]:
        return await asyncio.to_thread(self._postgresql.ask, _HELD, worker.pid)

    async def _watch(self, worker: Program, what: str) -> bool:
        """Measure how long others need to take over or end the turns that this worker plays now, if any."""
        held = await self._held(worker)
        if held:
            self._watching.append(asyncio.get_running_loop().create_task(self._measure(held, what)))
        return bool(held)

    async def _measure(self, held: Sequence[tuple[object, ...]], what: str) -> None:
        began = time.monotonic()
        left: list[tuple[object, ...]] = list(held)
        async with await psycopg.AsyncConnection.connect(
            self._postgresql.url, autocommit=True, application_name=OWN_NAME
        ) as session:
            while left and time.monotonic() - began < TAKEOVER_WAIT_S:
                columns = [list(column) for column in zip(*left, strict=True)]
                found = await (await session.execute(_LEFT.encode(), columns)).fetchall()
                pks = {pk for (pk,) in found}
                taken = len(left) - len(pks)
                self.record.takeovers[what] += [time.monotonic() - began] * taken
                left = [each for each in left if each[0] in pks]
                await asyncio.sleep(LOOK_S)
        self.record.never += len(left)

    async def _kill_server(self) -> None:
        server = self._rng.choice(self._servers)
        self.record.counts[WEB] += 1
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(AWAY_S)
        server.start()

    async def _delete_jobs(self) -> None:
        await self._every(JOBS_EVERY_S, self._delete_all_jobs)

    async def _delete_all_jobs(self) -> None:
        self.record.counts[JOBS] += 1
        await asyncio.to_thread(self._postgresql.ask, "DELETE FROM procrastinate_jobs")

    async def _terminate(self) -> None:
        self.record.counts[TERMINATED] += 1
        await asyncio.to_thread(self._postgresql.terminate_sessions)

    async def _restart_redis(self) -> None:
        if self._redis is not None:
            self.record.counts[RESTARTED] += 1
            await asyncio.to_thread(self._redis.restart)

    async def _flush_redis(self) -> None:
        if self._redis is not None:
            self.record.counts[FLUSHED] += 1
            await asyncio.to_thread(self._redis.flush)
