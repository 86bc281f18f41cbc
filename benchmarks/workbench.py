"""What the measurements on one engine share: its databases, the servers, and the jobs that they carry out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median

import psutil

from benchmarks import server
from benchmarks.databases import TEMPLATE_ID, Database, PostgreSQL, SQLite
from benchmarks.flooding.floods import Floods
from benchmarks.job import Job, Question, carry_out
from benchmarks.limits import agent_server, engines
from benchmarks.measured import appends, beside, reads
from benchmarks.measured.lists import Lists

SHORT, LONG = 100, 100_000
"""Events in a conversation before it is appended to."""
LENGTH_CLIENTS = 4
OPENED = 2_200
"""Events of a conversation that is opened while another one is asked for."""
REPLAYS = (10_000, 100_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int
    budget_s: float
    """How long one engine may take. Rounds that do not fit are left out, but for the first."""
    patience_s: float
    """How long one engine may wait for a quiet machine."""
    append_s: float
    limit_s: int
    echo_s: float
    asks: int
    """How often a question is asked."""
    locked_s: float
    """How long a conversation is kept locked."""
    idle_s: float
    """How long another user asks before a flood."""
    flood_s: float
    """How long another user asks while one floods."""


FULL = Plan(
    rounds=5,
    budget_s=870,
    patience_s=90,
    append_s=2.0,
    limit_s=3,
    echo_s=1.5,
    asks=200,
    locked_s=30,
    idle_s=2.5,
    flood_s=5.0,
)
QUICK = Plan(
    rounds=2,
    budget_s=230,
    patience_s=15,
    append_s=1.0,
    limit_s=1,
    echo_s=0.7,
    asks=60,
    locked_s=8,
    idle_s=1.0,
    flood_s=2.0,
)

Values = Iterator[tuple[str, float]]
"""Pairs of the name of a measurement and what it came to."""


class Workbench:
    """Servers are started when they are first asked for, and again if they have ended."""

    def __init__(self, database: Database, lists: Lists, floods: Floods, plan: Plan, directory: Path) -> None:
        self.database, self.lists, self.floods = database, lists, floods
        self.plan, self.directory = plan, directory
        self.number = 0
        """Which round it is, from 0."""
        self.long: list[str] = []
        """Public ids of the long conversations."""
        self.read: dict[str, str] = {}
        """By name, the addresses of reads that are polled."""
        self.read_statements: dict[str, str] = {}
        """By address, the SQL of these reads."""
        self.shared: beside.Shared | None = None
        """What the agent server has too."""
        self._servers = ExitStack()
        self._running: dict[str, server.Server] = {}

    @contextmanager
    def round(self, number: int) -> Iterator[None]:
        """Begin a round, and stop its servers at its end."""
        self.number = number
        try:
            yield
        finally:
            self.stop_servers()

    def stop_servers(self) -> None:
        """Stop the servers of this round: one of them could take a turn from the server that is measured."""
        self._running.clear()
        # A server that ended by itself was told of by the measurement that found it so.
        with suppress(server.NotServing):
            self._servers.close()

    def convserver(self) -> server.Server:
        """Return the server of this round."""
        return self._server("convserver", lambda: server.convserver(self.database.url, self.directory))

    def accounts(self) -> server.Server:
        """Return this round's server with accounts, or a new one if it did not recover from a flood."""
        return self._server("accounts", self.floods.serving)

    def bare(self) -> server.Server:
        """Return the bare application of this round."""
        return self._server("bare", lambda: server.bare(self.directory))

    def consumers(self) -> server.Server:
        """Return this round's consumers that send frames back."""
        return self._server("consumers", lambda: server.consumers(self.directory))

    def agent_server(self) -> server.Server:
        """Return the agent server of this round."""
        own = agent_server.python()
        return self._server("agent server", lambda: server.agent_server(own, self.directory))

    def bare_reads(self) -> server.Server:
        """Return this round's bare application that reads what the server does."""
        return self._server(
            "bare reads",
            lambda: server.bare_reads(self.database.url, self.read_statements, self.directory),
        )

    def _server(self, name: str, start: server.Start) -> server.Server:
        known = self._running.get(name)
        if known is None or not _is_alive(known):
            known = self._running[name] = self._servers.enter_context(start())
        return known

    # Preparations

    def make_template(self) -> None:
        """Let the server make the tables and a first conversation; the others are copies of its row."""
        with server.convserver(self.database.url, self.directory) as running:
            job = appends.by_socket(self.database, running, [TEMPLATE_ID], seconds=0.1)
            appends.carry_out_on(self.database, [TEMPLATE_ID], job)

    def fill_replays(self) -> None:
        """Make the conversations that are replayed."""
        for events in REPLAYS:
            self.database.fill(f"replay-{events}", conversations=1, events=events)

    def fill_opened(self) -> None:
        """Make the conversation that is opened again and again."""
        self.database.fill("opened", conversations=1, events=OPENED)

    def fill_long(self) -> None:
        """Make the long conversations."""
        self.long = self.database.fill("long", conversations=LENGTH_CLIENTS, events=LONG)

    def make_reads(self) -> None:
        """Make what is polled, and learn the SQL of these reads."""
        with server.convserver(self.database.url, self.directory) as running:
            self.read = reads.addresses(reads.make(running))
        self.database.execute(*self.database.analysis(), "SELECT 1")
        paths = list(self.read.values())
        self.read_statements = reads.statements(self.database, self.directory, paths)

    def make_shared(self) -> None:
        """Make a conversation that the agent server has as well."""
        with (
            server.convserver(self.database.url, self.directory) as ours,
            server.agent_server(agent_server.python(), self.directory) as other,
        ):
            self.shared = beside.shared(ours, other, self.directory)

    def fresh(self, key: str, *, conversations: int) -> list[str]:
        """Make short conversations for one measurement and return their public ids."""
        name = f"{key.replace('/', '-').replace(' ', '-')}-{self.number}"
        return self.database.fill(name, conversations=conversations, events=SHORT)

    # Jobs

    def limit(self, key: str, *, clients: int) -> Values:
        """Let the engine append by itself."""
        ids = self.fresh(key, conversations=clients)
        first_pk, seconds = self.database.pk_of(ids[0]), self.plan.limit_s
        if isinstance(self.database, PostgreSQL):
            yield key, engines.pgbench(self.database, clients=clients, first_pk=first_pk, seconds=seconds)
        else:
            assert isinstance(self.database, SQLite)
            yield key, engines.sqlite_loop(self.database, pk=first_pk, seconds=seconds)

    def append(self, key: str, ids: Sequence[str], *, batch: int = 1, follows: bool = True) -> Values:
        """Append by a socket for each of these conversations."""
        seconds = self.plan.append_s
        job = appends.by_socket(
            self.database, self.convserver(), ids, seconds=seconds, batch=batch, follows=follows
        )
        yield key, appends.carry_out_on(self.database, ids, job)["rate"]

    def post(self, key: str, *, door: str, clients: int) -> Values:
        """Append by REST, each client to a conversation of its own."""
        ids = self.fresh(key, conversations=clients)
        seconds = self.plan.append_s
        job = appends.by_rest(self.database, self.convserver(), ids, door=door, seconds=seconds)
        yield key, appends.carry_out_on(self.database, ids, job)["rate"]

    def to_bare(self, key: str, sort: str, *, clients: int) -> Values:
        """Send to what only answers."""
        yield key, self._answered(sort, self.bare(), "/echo", clients)

    def to_consumer(self, key: str, path: str, *, clients: int) -> Values:
        """Send to the consumer at this path, which sends every frame back."""
        yield key, self._answered("echo", self.consumers(), path, clients)

    def _answered(self, sort: str, running: server.Server, path: str, clients: int) -> float:
        """Return how much is answered in a second."""
        job = Job(
            sort=sort,
            port=running.port,
            paths=[path] * clients,
            after=[-1] * clients,
            follows=False,
            seconds=self.plan.echo_s,
        )
        return carry_out(job)["rate"]

    def get(self, name: str, *, clients: int) -> Values:
        """Read again and again, of the server and of the bare application."""
        path = self.read[name]
        for key, running in (
            (f"{name}/{clients}", self.convserver()),
            (f"bare {name}/{clients}", self.bare_reads()),
        ):
            yield key, self._answered("get", running, path, clients)

    def get_beside(self, name: str, ids: Sequence[str]) -> Values:
        """Read of the server and of the bare application in turns; a socket appends to each of these."""
        path, running = self.read[name], self.convserver()
        job = appends.by_socket(self.database, running, ids, seconds=0.0)
        questions = [Question(each.port, path, "") for each in (running, self.bare_reads())]
        result = appends.carry_out_on(
            self.database, ids, replace(job, questions=questions, times=self.plan.asks)
        )
        for key, latencies_ms in zip((name, f"bare {name}"), result["latencies_ms"], strict=True):
            yield f"{key} beside sockets, p99 ms", percentile(latencies_ms, 99)

    def ask(self, key: str, question: Question, beside: Job, *, appended_to: Sequence[str] = ()) -> Values:
        """Ask while something goes on beside it."""
        job = replace(beside, questions=[question], times=self.plan.asks)
        result = appends.carry_out_on(self.database, appended_to, job) if appended_to else carry_out(job)
        (latencies_ms,) = result["latencies_ms"]
        yield f"{key}, median ms", median(latencies_ms)
        yield f"{key}, p95 ms", percentile(latencies_ms, 95)
        yield f"{key}, p99 ms", percentile(latencies_ms, 99)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest of the values that this percentage of them does not exceed."""
    return sorted(values)[ceil(len(values) * percent / 100) - 1]


def _is_alive(running: server.Server) -> bool:
    try:
        return psutil.Process(running.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
