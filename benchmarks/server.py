"""The processes that are measured: started on a free port of the loopback, watched, and stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import psutil

ROOT = Path(__file__).resolve().parent.parent
START_WAIT_S = 120.0
STOP_WAIT_S = 20.0
SAMPLE_EVERY_S = 0.01

OWN_PREFIXES = ("CONVSERVER_", "LLM_", "DJANGO_", "OH_", "OPENHANDS_")
OWN_NAMES = {"DATABASE_URL", "REDIS_URL", "HOST", "PORT", "SECRET_KEY", "SESSION_API_KEY", "WEB_CONCURRENCY"}
"""What the servers read: a developer's shell must not change what is measured."""


class Server(NamedTuple):
    """A process that listens."""

    pid: int
    port: int


class NotServing(RuntimeError):
    """A process ended, or did not listen in time; the text holds the end of its log."""


@contextmanager
def convserver(database_url: str, data_dir: Path, **environment: str) -> Iterator[Server]:
    """Run the server on this database; it has answered once, so routes and pages are imported."""
    port = _free_port()
    own = {
        "DATABASE_URL": database_url,
        "CONVSERVER_DATA_DIR": str(data_dir),
        "PORT": str(port),
        **environment,
    }
    with _running(["convserver", "serve"], port, own, data_dir / "server.log") as server:
        connection = HTTPConnection("127.0.0.1", port, timeout=START_WAIT_S)
        connection.request("GET", "/api/nowhere")
        connection.getresponse().read()
        connection.close()
        yield server


@contextmanager
def worker(database_url: str, data_dir: Path, **environment: str) -> Iterator[Server]:
    """Run a worker of a cluster on this database; its port answers probes only."""
    port = _free_port()
    own = {"DATABASE_URL": database_url, "CONVSERVER_DATA_DIR": str(data_dir), **environment}
    module = ["convserver", "worker", "--probe-port", str(port)]
    with _running(module, port, own, data_dir / "worker.log") as running:
        yield running


@contextmanager
def bare(data_dir: Path) -> Iterator[Server]:
    """Run the bare sockets."""
    port = _free_port()
    with _running(["benchmarks.limits.bare", str(port)], port, {}, data_dir / "bare.log") as server:
        yield server


@contextmanager
def bare_reads(database_url: str, statements: dict[str, str], data_dir: Path) -> Iterator[Server]:
    """Run the bare reads on this database, by the SQL of each address."""
    port = _free_port()
    module = ["benchmarks.limits.bare_reads", str(port)]
    own = {"DATABASE_URL": database_url}
    given = json.dumps(statements)
    with _running(module, port, own, data_dir / "bare-reads.log", given) as server:
        yield server


@contextmanager
def consumers(data_dir: Path) -> Iterator[Server]:
    """Run the consumers that send frames back."""
    port, own = _free_port(), {"CONVSERVER_DATA_DIR": str(data_dir)}
    module = ["benchmarks.limits.consumers", str(port)]
    with _running(module, port, own, data_dir / "consumers.log") as server:
        yield server


@contextmanager
def agent_server(python: Path, data_dir: Path) -> Iterator[Server]:
    """Run the agent server of OpenHands by the interpreter that has it, on its files in this directory."""
    port, own_dir = _free_port(), data_dir / "agent-server"
    own_dir.mkdir(exist_ok=True)
    own = {
        "HOME": str(own_dir),
        "OH_CONVERSATIONS_PATH": str(own_dir / "conversations"),
        "OH_WORKSPACE_PATH": str(own_dir / "workspace"),
        "OH_BASH_EVENTS_DIR": str(own_dir / "bash-events"),
        "OH_ENABLE_VSCODE": "false",
        "OH_PRELOAD_TOOLS": "false",
        # Its library of models would ask another host for their prices.
        "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    }
    module = ["openhands.agent_server", "--host", "127.0.0.1", "--port", str(port)]
    with _running(module, port, own, data_dir / "agent-server.log", python=str(python)) as server:
        yield server


Start = Callable[[], AbstractContextManager[Server]]
"""Starts a process when it is entered, and stops it when it is left."""


class Memory:
    """The largest resident memory of a process while it is watched, in MB."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.peak_mb = self.now_mb()

    def now_mb(self) -> float:
        """Return the resident memory of this moment."""
        return float(self._process.memory_info().rss) / 1e6

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Keep the peak up to date."""
        self.peak_mb = self.now_mb()
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=[ended])
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_EVERY_S):
            self.peak_mb = max(self.peak_mb, self.now_mb())


@contextmanager
def _running(
    module: Sequence[str],
    port: int,
    own: dict[str, str],
    log_path: Path,
    given: str = "",
    *,
    python: str = sys.executable,
) -> Iterator[Server]:
    with log_path.open("ab") as log, TemporaryFile("w+") as said:
        said.write(given)
        said.seek(0)
        process = subprocess.Popen(
            [python, "-m", *module],
            cwd=ROOT,
            env=environment() | own,
            stdin=said,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_listening(process, port, log_path)
        yield Server(process.pid, port)
        if process.poll() is not None:
            raise _not_serving(process, log_path)
    except Exception as error:
        if process.poll() is None or isinstance(error, NotServing):
            error.add_note(f"{module[0]} wrote last: {_end_of(log_path)}")
            raise
        raise _not_serving(process, log_path) from error
    finally:
        _stop(process)


def environment() -> dict[str, str]:
    """Return the variables of this process, without those that the server reads."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(OWN_PREFIXES) and name not in OWN_NAMES
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, log_path: Path) -> None:
    give_up_at = time.monotonic() + START_WAIT_S
    while process.poll() is None and time.monotonic() < give_up_at:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise _not_serving(process, log_path)


def _not_serving(process: subprocess.Popen[bytes], log_path: Path) -> NotServing:
    how = "does not listen" if process.poll() is None else f"ended by itself ({process.returncode})"
    return NotServing(f"A server {how}: {_end_of(log_path)}")


def _end_of(log_path: Path) -> str:
    return log_path.read_text(errors="replace")[-2000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
