"""One round of measurements on one engine: each limit next to what is compared with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from uuid import uuid4

from benchmarks import appends, hanging, limits, pages, server
from benchmarks.databases import TEMPLATE_ID, Database, PostgreSQL, SQLite
from benchmarks.job import Job, Question, carry_out
from benchmarks.lists import Lists

SHORT, LONG = 100, 100_000
"""Events in a conversation before it is appended to."""
LENGTH_CLIENTS = 4
BATCH = 50
BESIDE = 16
"""Clients that append while another one asks."""
OPENED, OPENERS = 2_200, 8
"""Events of a conversation that so many clients open at once while another one asks."""
AUDIENCE, SHOWN = 1_000, 200
"""V1 sockets on one conversation, and the events that each is shown."""
_JOIN = "/socket.io/?EIO=4&transport=websocket&latest_event_id=-1&conversation_id=opened-0"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int
    append_s: float
    limit_s: int
    echo_s: float
    replays: Sequence[int]
    asks: int
    """How often a question is asked."""


FULL = Plan(rounds=5, append_s=2.0, limit_s=3, echo_s=1.5, replays=(10_000, 100_000), asks=200)
QUICK = Plan(rounds=2, append_s=1.0, limit_s=1, echo_s=0.7, replays=(10_000, 100_000), asks=60)

Samples = dict[str, list[float]]
"""By measurement, a value per round: events/s, or MB or ms where the name says so."""


class Rounds:
    """All rounds on one engine, and what they found."""

    def __init__(self, database: Database, lists: Lists, plan: Plan, directory: Path) -> None:
        self.samples: Samples = defaultdict(list)
        self._database = database
        self._lists = lists
        self._plan = plan
        self._directory = directory
        self._long: list[str] = []

    def prepare(self) -> None:
        """Let the server make the tables and a first conversation; fill the long ones and the lists."""
        with server.convserver(self._database.url, self._directory) as running:
            self._append(running, "", [TEMPLATE_ID], seconds=0.1)
        for events in self._plan.replays:
            self._database.fill(f"replay-{events}", conversations=1, events=events)
        self._database.fill("opened", conversations=1, events=OPENED)
        self._long = self._database.fill("long", conversations=LENGTH_CLIENTS, events=LONG)
        self._lists.prepare()

    def run(self, number: int) -> None:
        """Measure everything once. Raise ClientFailed, LimitFailed or NotServing."""
        with ExitStack() as stack:
            bare = stack.enter_context(server.bare(self._directory))
            running = stack.enter_context(server.convserver(self._database.url, self._directory))
            self._replays(running, bare, number)
            self._single_appends(running, bare, number)
            self._batches(running, number)
            self._lengths(running, number)
            self._questions(running, number)
            self._audience(running)
        for key, latencies_ms in hanging.latencies_ms(
            self._database, self._directory, self._plan.asks
        ).items():
            self._keep(f"{key}, median ms", median(latencies_ms))
        for key, cost_ms in pages.costs_ms().items():
            self._keep(f"shown {key}, ms", cost_ms)
        for key, latencies_ms in self._lists.run(self._plan.asks).items():
            self._keep(f"{key} ms", median(latencies_ms))

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
        job = Job(sort="replay", port=target.port, paths=[path], after=[-1], events=events)
        return carry_out(job)["rate"]

    # Appends

    def _single_appends(self, running: server.Server, bare: server.Server, number: int) -> None:
        self._limit("limit/1", clients=1)
        self._fresh_append(running, "append/1", number, clients=1)
        self._posts(running, number, clients=1)
        self._limit("limit/16", clients=16)
        self._fresh_append(running, "append/16", number, clients=16)
        self._posts(running, number, clients=16)
        self._fresh_append(running, "append/64", number, clients=64)
        self._bare(bare, "echo/64", "echo", clients=64)
        self._fresh_append(running, "append write-only/64", number, clients=64, follows=False)
        self._posts(running, number, clients=64)
        self._bare(bare, "post bare/64", "post bare", clients=64)

    def _posts(self, running: server.Server, number: int, *, clients: int) -> None:
        """Append by REST, at one door and at the other."""
        for door in appends.DOORS:
            key = f"post {door}/{clients}"
            ids = self._fresh(key, number, conversations=clients)
            job = appends.by_rest(self._database, running, ids, door=door, seconds=self._plan.append_s)
            self._keep(key, appends.carry_out_on(self._database, ids, job)["rate"])

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
        ids = self._fresh(key, number, conversations=clients)
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
        job = appends.by_socket(
            self._database,
            running,
            ids,
            seconds=seconds or self._plan.append_s,
            batch=batch,
            follows=follows,
        )
        self._keep(key, appends.carry_out_on(self._database, ids, job)["rate"])

    # Questions

    def _questions(self, running: server.Server, number: int) -> None:
        """Ask for one conversation: with nothing beside it, and while it and others are appended to."""
        ids = self._fresh("asked", number, conversations=BESIDE)
        question = Question(running.port, f"/api/conversations/{ids[0]}", f'"conversation_id":"{ids[0]}"')
        self._ask("asked idle", question, Job(sort="ask"))
        opening = Job(sort="open", port=running.port, paths=[_JOIN] * OPENERS, events=OPENED)
        self._ask("asked beside openings", question, opening)
        by_socket = appends.by_socket(self._database, running, ids, seconds=0.0)
        self._ask("asked beside sockets", question, by_socket, appended_to=ids)
        by_rest = appends.by_rest(self._database, running, ids, door="v0", seconds=0.0)
        self._ask("asked beside REST", question, by_rest, appended_to=ids)

    def _ask(self, key: str, question: Question, beside: Job, *, appended_to: Sequence[str] = ()) -> None:
        job = replace(beside, questions=[question], times=self._plan.asks)
        result = appends.carry_out_on(self._database, appended_to, job) if appended_to else carry_out(job)
        (latencies_ms,) = result["latencies_ms"]
        self._keep(f"{key}, median ms", median(latencies_ms))
        self._keep(f"{key}, p95 ms", _percentile(latencies_ms, 95))
        self._keep(f"{key}, p99 ms", _percentile(latencies_ms, 99))
        if result["events"]:
            self._keep(f"{key}, events/s", result["rate"])

    # Many readers

    def _audience(self, running: server.Server) -> None:
        """Append to a new conversation that many follow."""
        public_id = uuid4().hex
        speaker = f"/ws/conversations/{public_id}?version=V1&follow=false"
        listeners = [f"/sockets/events/{public_id}"] * AUDIENCE
        job = Job(sort="audience", port=running.port, paths=[speaker, *listeners], events=SHOWN)
        result = carry_out(job)
        self._keep("audience", result["rate"])
        self._keep("audience, p99 ms", _percentile(result["latencies_ms"][0], 99))

    # Limits

    def _limit(self, key: str, *, clients: int) -> None:
        ids = self._fresh(key, len(self.samples[key]), conversations=clients)
        first_pk = self._database.pk_of(ids[0])
        if isinstance(self._database, PostgreSQL):
            rate = limits.pgbench(
                self._database, clients=clients, first_pk=first_pk, seconds=self._plan.limit_s
            )
        else:
            assert isinstance(self._database, SQLite)
            rate = limits.sqlite_loop(self._database, pk=first_pk, seconds=self._plan.limit_s)
        self._keep(key, rate)

    def _bare(self, bare: server.Server, key: str, sort: str, *, clients: int) -> None:
        job = Job(
            sort=sort,
            port=bare.port,
            paths=["/echo"] * clients,
            after=[-1] * clients,
            follows=False,
            seconds=self._plan.echo_s,
        )
        self._keep(key, carry_out(job)["rate"])

    # What all share

    def _fresh(self, key: str, number: int, *, conversations: int) -> list[str]:
        """Make short conversations for one measurement and return their public ids."""
        name = f"{key.replace('/', '-').replace(' ', '-')}-{number}"
        return self._database.fill(name, conversations=conversations, events=SHORT)

    def _keep(self, key: str, value: float) -> None:
        if key:
            self.samples[key].append(value)


def _percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest of the values that so many of a hundred do not exceed."""
    return sorted(values)[ceil(len(values) * percent / 100) - 1]
