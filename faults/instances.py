"""PostgreSQL and Redis of a run's own, on free ports of the loopback: to be broken without harm to others."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis

from faults.waits import START_WAIT_S, STOP_WAIT_S
from tests.support.servers.ports import free_port

LOOK_S = 0.05
CONNECTIONS = 500
PROGRAMS = Path("/usr/lib/postgresql")
OWN_NAME = "faults"
"""The application name of the run's own connections, which it does not terminate."""


class Missing(RuntimeError):
    """A program that the run needs is not installed; the text says which."""


class Instance(ABC):
    """A server program that is started, killed and started again on one port."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """The address for convserver's configuration."""

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def start(self) -> None:
        """Start, again if a predecessor is not quite gone, and return once it answers."""
        give_up_at = time.monotonic() + START_WAIT_S
        self._launch()
        while not self._answers():
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"{self._command()[0]} did not start.")
            time.sleep(LOOK_S)
            if self._process is not None and self._process.poll() is not None:
                self._launch()

    def _launch(self) -> None:
        self._process = subprocess.Popen(
            self._command(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def family(self) -> list[psutil.Process]:
        """Return its processes, the first one first; none if it does not run."""
        return [] if self._process is None else _family_of(self._process.pid)

    def kill(self) -> None:
        """End it and all of its processes at once; nothing if it does not run."""
        if self._process is not None:
            for each in self.family():
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            self._process.wait(STOP_WAIT_S)
            self._process = None

    def restart(self) -> None:
        """Kill it, and start it again at the same port."""
        self.kill()
        self.start()


def _family_of(pid: int) -> list[psutil.Process]:
    """Return a process and all below it, the first one first: it starts no more of them."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class PostgreSQL(Instance):
    """A PostgreSQL with an empty database."""

    def __init__(
        self, directory: Path, *, primary: PostgreSQL | None = None, is_synced: bool = False
    ) -> None:
        """Make one in `directory`, which must not exist; with a `primary`, a standby of it, which runs.

        Its commits wait for the disk only if it `is_synced`: most runs never cut the power. Raise Missing
        if PostgreSQL's server programs are not installed.
        """
        super().__init__()
        self._programs = _postgresql_programs()
        self._run_as = unprivileged()
        self._data = directory
        self._is_synced = is_synced
        directory.mkdir()
        directory.chmod(0o777)
        if primary is None:
            self._run("initdb", "--auth=trust", "--no-sync", "-U", "postgres")
        else:
            self._run("pg_basebackup", "-R", "--no-sync", "--checkpoint=fast", "-d", primary.url)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _command(self) -> Sequence[str]:
        settings = (
            f"port={self.port}",
            f"max_connections={CONNECTIONS}",
            "unix_socket_directories=",
            "listen_addresses=127.0.0.1",
            f"fsync={'on' if self._is_synced else 'off'}",
            "dynamic_shared_memory_type=mmap",  # in its directory: what is killed leaves nothing elsewhere
        )
        options = [word for setting in settings for word in ("-c", setting)]
        return [
            *self._run_as,
            str(self._programs / "postgres"),
            "-D",
            str(self._data / "data"),
            *options,
        ]

    def _run(self, program: str, *options: str) -> None:
        command = [*self._run_as, str(self._programs / program), *options, "-D", str(self._data / "data")]
        subprocess.run(command, check=True, capture_output=True, cwd="/")

    def kill(self) -> None:
        """End it and all of its processes at once; nothing if it does not run."""
        family = self.family()
        if self._run_as:  # what runs it must see it end: a new one does not start beside an unburied one
            family = family[1:]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, STOP_WAIT_S)  # a successor does not start beside one of them
        super().kill()

    def promote(self) -> None:
        """Let a standby become a primary, and return once it is."""
        self.ask("SELECT pg_promote()")

    def require_standby(self) -> None:
        """Acknowledge no commit from now on before a standby has it on its disk."""
        self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.ask("SELECT pg_reload_conf()")
        give_up_at = time.monotonic() + START_WAIT_S
        while not self.ask("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            if time.monotonic() > give_up_at:
                raise RuntimeError("No standby follows.")
            time.sleep(LOOK_S)

    def _answers(self) -> bool:
        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def ask(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a statement."""
        return self.ask_all([(statement, *values)])[0]

    def ask_all(self, questions: Sequence[tuple[str, *tuple[object, ...]]]) -> list[list[tuple[Any, ...]]]:
        """Return the rows of each statement; several of them see the same moment."""
        is_one = len(questions) == 1
        with psycopg.connect(self.url, autocommit=is_one, application_name=OWN_NAME) as session:
            session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            cursors = [session.execute(statement.encode(), values) for statement, *values in questions]
            return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def terminate_sessions(self) -> int:
        """End all connections but the run's own; return how many."""
        found = self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND application_name <> %s",
            OWN_NAME,
        )
        return len(found)


class Redis(Instance):
    """A Redis that keeps nothing on the disk."""

    def __init__(self) -> None:
        """Raise Missing if Redis is not installed."""
        super().__init__()
        self._program = shutil.which("redis-server")
        if self._program is None:
            raise Missing("redis-server is not installed.")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        return [str(self._program), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]

    def _answers(self) -> bool:
        try:
            with redis.Redis(port=self.port, socket_timeout=1) as client:
                client.ping()
        except redis.RedisError:
            return False
        return True

    def flush(self) -> None:
        """Remove all that it holds."""
        with redis.Redis(port=self.port, socket_timeout=60) as client:
            client.flushall()


def _postgresql_programs() -> Path:
    found = sorted(PROGRAMS.glob("*/bin"), key=lambda path: path.parent.name)
    whole = [path for path in found if (path / "initdb").exists() and (path / "postgres").exists()]
    if not whole:
        raise Missing(f"PostgreSQL's server programs are not installed in {PROGRAMS}.")
    return whole[-1]


def unprivileged() -> Sequence[str]:
    """Return what runs a program as somebody else than root, whom PostgreSQL refuses."""
    if os.geteuid():
        return ()
    if shutil.which("runuser") is None:
        raise Missing("PostgreSQL does not run as root, and there is no runuser.")
    return ("runuser", "-u", "postgres", "--")
