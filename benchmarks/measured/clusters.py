"""Web and worker processes on one PostgreSQL, and the standalone server that they are compared with."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit
from uuid import uuid4

from benchmarks import server
from benchmarks.databases import Database
from benchmarks.job import Job, Result, carry_out
from benchmarks.measured import appends

REDIS_URL = os.environ.get("TEST_REDIS_URL") or "redis://127.0.0.1:6379/0"
"""What the processes of a cluster tell each other goes by it; if it does not answer, they only poll."""
SOCKETS = 64
"""Clients that append."""
TALKERS = 16
"""Conversations that ask their agents at the same time."""
IDLE_ANSWERS_S, FIRST_ANSWERS_S = 1.5, 0.1
_ENVIRONMENT = {
    "CONVSERVER_AGENT": "benchmarks.measured.prompt_agent.PromptAgent",
    "CONVSERVER_MAX_CONCURRENT": "1000",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """How many processes there are, and what is measured of them."""

    name: str
    webs: int = 1
    workers: int = 1
    appends: bool = False
    idles: bool = False
    answers: bool = False

    @property
    def keys(self) -> list[str]:
        """The names of the values that it brings."""
        return [
            *([f"append, {self.name}"] if self.appends else []),
            *([f"first piece idle, {self.name}, median ms"] if self.idles else []),
            *(
                [f"answers, {self.name}", f"first piece under load, {self.name}, median ms"]
                if self.answers
                else []
            ),
        ]


CLUSTERS = (
    Cluster(name="standalone", workers=0, appends=True, idles=True, answers=True),
    Cluster(name="1 web, 1 worker", appends=True, idles=True, answers=True),
    Cluster(name="1 web, 2 workers", workers=2, answers=True),
    Cluster(name="2 webs, 1 worker", webs=2, appends=True),
)
"""The first is what the others are compared with."""


def measured(
    database: Database, directory: Path, ids: Sequence[str], seconds: float
) -> Iterator[tuple[str, float]]:
    """Yield the values of all clusters; `ids` are those of the conversations that are appended to.

    Raise ClientFailed or NotServing.
    """
    for cluster in CLUSTERS:
        with _running(cluster, database.url, directory) as servers:
            if cluster.appends:
                job = _spread(appends.by_socket(database, servers[0], ids, seconds=seconds), servers)
                yield f"append, {cluster.name}", appends.carry_out_on(database, ids, job)["rate"]
            if cluster.idles:
                (waits_ms,) = _talk(servers, 1, IDLE_ANSWERS_S)["latencies_ms"]
                yield f"first piece idle, {cluster.name}, median ms", median(waits_ms)
            if cluster.answers:
                result = _talk(servers, TALKERS, seconds)
                (waits_ms,) = result["latencies_ms"]
                yield f"answers, {cluster.name}", result["rate"]
                yield f"first piece under load, {cluster.name}, median ms", median(waits_ms)


@contextmanager
def _running(cluster: Cluster, database_url: str, directory: Path) -> Iterator[list[server.Server]]:
    """Run the processes, and yield those that serve."""
    own = dict(_ENVIRONMENT)
    if cluster.workers:
        own |= {"CONVSERVER_MANAGER": "clustered", **({"REDIS_URL": REDIS_URL} if _has_redis() else {})}
    with ExitStack() as stack:
        for _ in range(cluster.workers):
            stack.enter_context(server.worker(database_url, directory, **own))
        yield [
            stack.enter_context(server.convserver(database_url, directory, **own))
            for _ in range(cluster.webs)
        ]


def _talk(servers: Sequence[server.Server], talkers: int, seconds: float) -> Result:
    """Talk to the agents of new conversations, whose first turns are not counted."""
    names = [uuid4().hex for _ in range(talkers)]
    first = Job(
        sort="talk",
        port=servers[0].port,
        paths=[f"/ws/conversations/{name}?after=-1" for name in names],
        after=[-1] * talkers,
        seconds=FIRST_ANSWERS_S,
    )
    carry_out(_spread(first, servers))
    return carry_out(_spread(replace(first, seconds=seconds), servers))


def _spread(job: Job, servers: Sequence[server.Server]) -> Job:
    """Return the job with its clients spread over all servers."""
    return replace(job, more_ports=[each.port for each in servers[1:]])


def _has_redis() -> bool:
    parts = urlsplit(REDIS_URL)
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((parts.hostname or "127.0.0.1", parts.port or 6379)) == 0
