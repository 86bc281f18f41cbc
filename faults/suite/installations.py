"""The two installations that are broken: one server on SQLite, and two on a PostgreSQL and a Redis."""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from faults.clock import Clock
from faults.cluster.script import OFTEN, RUNS_FILE
from faults.instances import PostgreSQL, Redis
from faults.programs import plain_environment
from faults.suite import stored
from faults.suite.proxy import Proxy
from faults.suite.servers import ServerProcess
from faults.suite.stored import Question, Store
from tests.support.servers.ports import free_port

DISK = "640m"
"""Room for the database, its write-ahead log, and a copy of it in a long run."""
AGENT = "faults.cluster.agent.DrilledAgent"
"""Runs two tools for what it is told, and goes on after a crash."""


class Installation(ABC):
    """Servers that run, each behind a proxy for its clients."""

    engine: str
    count: int
    runs_agents: bool
    """Whether the servers run the agents' loops themselves."""
    triggers: str
    """The statement that names the triggers which act."""

    def __init__(self, place: Path, *, planted: str | None = None) -> None:
        """Everything is kept in `place`; with `planted` the servers have that bug."""
        self.place = place
        place.chmod(0o755)  # PostgreSQL runs as somebody else
        self.clocks: list[Clock] = []
        """Of each server, as if each were a host of its own."""
        self.key = secrets.token_urlsafe(48)
        self.secret = secrets.token_hex(16)
        """What a user of the servers keeps secret."""
        self.runs = place / "runs"
        """In which each run of an agent's tool leaves a line."""
        self.options = ["--planted", planted] if planted else []
        """With these `faults.entry` starts every program of this installation."""
        self.servers: list[ServerProcess] = []
        self.client_proxies: list[Proxy] = []

    @property
    def client_ports(self) -> list[int]:
        """Where clients ask."""
        return [proxy.port for proxy in self.client_proxies]

    async def start(self) -> None:
        """Start everything, and return once it serves."""
        await self._start_services()
        for _ in range(self.count):
            self.servers.append(self.new_server())
            self.client_proxies.append(Proxy(free_port(), self.servers[-1].port))
        for server in self.servers:  # one after the other: the first one makes the tables
            await server.start()
        for proxy in self.client_proxies:
            await proxy.start()

    async def close(self) -> None:
        """End everything at once."""
        for proxy in self.client_proxies:
            await proxy.close()
        for server in self.servers:
            server.kill()
        await self._close_services()

    def new_server(self) -> ServerProcess:
        """Return one more server, which does not run yet."""
        port = free_port()
        self.clocks.append(Clock(self.place / f"clock-{port}"))
        options = [*self.options, "--clock", str(self.clocks[-1].path)]
        return ServerProcess(port, self.place, self.variables(), options=options)

    def variables(self) -> dict[str, str]:
        """Return the environment of every process of this installation."""
        own = {
            "CONVSERVER_DATA_DIR": str(self.data),
            "SECRET_KEY": self.key,
            "CONVSERVER_AGENT": AGENT,
            "CONVSERVER_REPEATABLE_TOOLS": OFTEN,
            "CONVSERVER_MAX_CONCURRENT": "100000",
            "ALLOW_SET_CONVERSATION_ID": "1",
            RUNS_FILE: str(self.runs),
        }
        return {**plain_environment(), **own, **self._variables()}

    @property
    def data(self) -> Path:
        """The servers' data directory."""
        return self.place / "data"

    @abstractmethod
    def _variables(self) -> dict[str, str]: ...

    async def _start_services(self) -> None:
        self.data.mkdir()

    @abstractmethod
    async def _close_services(self) -> None: ...

    @abstractmethod
    def ask_all(self, questions: Sequence[Question]) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each statement, sent from outside; all see the same moment."""

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, sent from outside; `{0}` and so on are its values."""
        return self.ask_all([(statement, *values)])[0]

    def store(self, talks: str, creations: str) -> Store:
        """Return what is stored of the conversations whose ids, and whose titles, begin so."""
        return stored.read(self.ask_all, self.triggers, talks=talks, creations=creations)


class OnSQLite(Installation):
    """One server on a file; the disk is a small one, where that is possible."""

    engine = "SQLite"
    count = 1
    runs_agents = True
    triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger'"

    def __init__(self, place: Path, *, planted: str | None = None) -> None:
        super().__init__(place, planted=planted)
        self.has_small_disk = False
        self.options = ["--bound-by-rights", *self.options]

    @property
    def file(self) -> Path:
        """The database."""
        return self.data / "convserver.sqlite3"

    def files(self) -> list[Path]:
        """Return the database and those beside it that are there."""
        return [each for each in self.data.glob(f"{self.file.name}*") if each.suffix != ".lock"]

    def _variables(self) -> dict[str, str]:
        return {"DATABASE_URL": f"sqlite:///{self.file}", "REDIS_URL": ""}

    async def _start_services(self) -> None:
        await super()._start_services()
        if os.geteuid() == 0 and sys.platform == "linux":
            mount = ("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.data))
            self.has_small_disk = await _succeeds(*mount)

    async def _close_services(self) -> None:
        if self.has_small_disk:
            await _succeeds("umount", "--lazy", str(self.data))

    @contextmanager
    def connected(self) -> Iterator[sqlite3.Connection]:
        """Open the file as another program would."""
        with closing(sqlite3.connect(self.file, isolation_level=None, timeout=10.0)) as connection:
            yield connection

    def ask_all(self, questions: Sequence[Question]) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each statement."""
        with self.connected() as connection:
            if len(questions) == 1:
                return [_asked(connection, *questions[0])]
            connection.execute("BEGIN")
            return [_asked(connection, *question) for question in questions]


class OnPostgreSQL(Installation):
    """Two servers, with a proxy before PostgreSQL and one before Redis."""

    engine = "PostgreSQL"
    count = 2
    runs_agents = False
    triggers = "SELECT tgname FROM pg_trigger WHERE tgenabled IN ('O', 'A') AND NOT tgisinternal"

    def __init__(self, place: Path, *, planted: str | None = None) -> None:
        """Raise Missing if PostgreSQL or Redis is not installed."""
        super().__init__(place, planted=planted)
        self.postgresql = self.new_postgresql()
        self.redis = Redis()
        self.database_proxy = Proxy(free_port(), self.postgresql.port)
        self.redis_proxy = Proxy(free_port(), self.redis.port)

    def new_postgresql(self) -> PostgreSQL:
        """Make the PostgreSQL of this installation."""
        return PostgreSQL(self.place / "postgresql")

    def _variables(self) -> dict[str, str]:
        return {
            "DATABASE_URL": _behind(self.postgresql.url, self.database_proxy.port),
            "REDIS_URL": _behind(self.redis.url, self.redis_proxy.port),
            "CONVSERVER_MANAGER": "clustered",  # its loops are run by workers, of which there are none
        }

    async def _start_services(self) -> None:
        await super()._start_services()
        await asyncio.to_thread(self.postgresql.start)
        await asyncio.to_thread(self.redis.start)
        await self.database_proxy.start()
        await self.redis_proxy.start()

    async def _close_services(self) -> None:
        await self.database_proxy.close()
        await self.redis_proxy.close()
        self.postgresql.kill()
        self.redis.kill()

    def ask_all(self, questions: Sequence[Question]) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each statement."""
        return self.postgresql.ask_all(
            [(_with(statement, values, "%s"), *values) for statement, *values in questions]
        )


async def _succeeds(*command: str) -> bool:
    process = await asyncio.create_subprocess_exec(*command, stderr=DEVNULL)
    return await process.wait() == 0


def _asked(connection: sqlite3.Connection, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(_with(statement, values, "?"), values).fetchall()


def _with(statement: str, values: Sequence[object], mark: str) -> str:
    return statement.format(*[mark] * len(values))


def _behind(url: str, port: int) -> str:
    """Return the address by way of a proxy."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}" if user else f"127.0.0.1:{port}"))
