"""Kill, stop and cut off parts of a running cluster while people use it, and check that nothing is lost.

Starts PostgreSQL and Redis of its own, two servers and three workers. Exit status: 0 if all is as promised, 1
if not, 2 if something that the drill needs is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import psutil

from faults.cluster import table
from faults.cluster.disturbances import Disturbances, Record
from faults.cluster.judge import Findings, judged
from faults.cluster.people import People, Talk
from faults.cluster.script import OFTEN, RUNS_FILE
from faults.instances import Missing, PostgreSQL, Redis
from faults.programs import Program
from faults.waits import START_WAIT_S
from tests.support.servers.ports import free_port

SERVERS, WORKERS = 2, 3
RUNNING = "The worker is running."
"""What a worker prints when it takes turns."""
SETTLE_WAIT_S = 600.0
"""After the last fault all is answered and read within this time, or it is missing."""
LOOK_S = 0.2
USUAL_START_S = 15.0
"""In this time all programs of a drill start, with two processors that have little else to do."""
SLOWEST = 6.0
"""A slow machine gets more time for the same messages, at most this many times as much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How large a drill is."""

    conversations: int
    messages: int
    seconds: float
    """For so long things break; messages are spread over it."""


FULL = Size(conversations=200, messages=20, seconds=480.0)
"""At this pace two cores also carry the starts of what was killed: a takeover that waits for a machine that
is too slow says nothing about the cluster."""
QUICK = Size(conversations=30, messages=6, seconds=40.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a drill and print its table."""
    asked = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    size = QUICK if asked.quick else FULL
    place = Path(mkdtemp(prefix="convserver-drill-"))
    place.chmod(0o755)  # PostgreSQL runs as somebody else
    print(f"seed {asked.seed}", flush=True)
    try:
        with ExitStack() as running:
            findings, record = _drill(size, asked, place, running)
    except Missing as missing:
        print(f"The drill cannot run: {missing}")
        return 2
    print(table.text(findings, record, has_redis=not asked.no_redis))
    if findings.wrong or record.never or not all(record.takeovers.values()):
        print(f"\nLogs, and the database as it was, are in {place}.")
        return 1
    rmtree(place)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m faults.cluster", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32), help="what breaks, and when")
    parser.add_argument("--quick", action="store_true", help="a round of about a minute")
    parser.add_argument("--no-redis", action="store_true", help="hints go through PostgreSQL")
    return parser


def _drill(size: Size, asked: argparse.Namespace, place: Path, running: ExitStack) -> tuple[Findings, Record]:
    postgresql = PostgreSQL(place / "postgresql")
    running.callback(postgresql.kill)
    postgresql.start()
    redis = None if asked.no_redis else Redis()
    if redis is not None:
        running.callback(redis.kill)
        redis.start()
    variables = _variables(postgresql, redis, place)
    ports = [free_port() for _ in range(SERVERS)]
    servers = [
        Program(f"server-{port}", ["convserver", "serve"], {**variables, "PORT": str(port)}, place)
        for port in ports
    ]
    workers = [
        Program(f"worker-{number}", ["convserver", "worker"], variables, place)
        for number in range(1, WORKERS + 1)
    ]
    began = time.monotonic()
    for program in (*servers, *workers):
        running.callback(program.kill)
        program.start()
    rng = random.Random(asked.seed)
    _until_running(workers)
    slowness = min(max(1.0, (time.monotonic() - began) / USUAL_START_S), SLOWEST)
    size = replace(size, seconds=slowness * size.seconds)
    disturbances = Disturbances(rng, workers, servers, postgresql, redis, size.seconds)
    psutil.cpu_percent()
    talks = asyncio.run(_used(size, ports, rng, disturbances))
    disturbances.record.busy = psutil.cpu_percent() / 100
    return judged(postgresql, talks, place / "runs"), disturbances.record


def _variables(postgresql: PostgreSQL, redis: Redis | None, place: Path) -> dict[str, str]:
    return {
        "CONVSERVER_MANAGER": "clustered",
        "CONVSERVER_AGENT": "faults.cluster.agent.DrilledAgent",
        "CONVSERVER_REPEATABLE_TOOLS": OFTEN,
        "CONVSERVER_MAX_CONCURRENT": "100000",
        "CONVSERVER_DATA_DIR": str(place / "data"),
        "DATABASE_URL": postgresql.url,
        "REDIS_URL": redis.url if redis else "",
        "SECRET_KEY": secrets.token_urlsafe(64),
        RUNS_FILE: str(place / "runs"),
    }


async def _used(
    size: Size, ports: Sequence[int], rng: random.Random, disturbances: Disturbances
) -> list[Talk]:
    """Let people use the cluster while it is disturbed; return what they know once all is quiet."""
    talks = [Talk() for _ in range(size.conversations)]
    people = People(ports, random.Random(rng.random()))
    await _until_listening(ports)
    reading = [asyncio.ensure_future(people.read(talk)) for talk in talks]
    try:
        writing = [people.write(talk, size.messages, size.seconds) for talk in talks]
        await asyncio.gather(disturbances.run(), *writing)
        await _until(lambda: all(talk.is_answered for talk in talks))
        # Somebody may still be sent what a late loop has stored: all have the same time for that.
        await asyncio.sleep(2.0)
    finally:
        for each in reading:
            each.cancel()
        await asyncio.wait(reading)
        await people.close()
    return talks


def _until_running(workers: Sequence[Program]) -> None:
    give_up_at = time.monotonic() + START_WAIT_S
    for worker in workers:
        while RUNNING not in worker.log():
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"{worker.name} does not run.")
            time.sleep(LOOK_S)


async def _until_listening(ports: Sequence[int]) -> None:
    give_up_at = time.monotonic() + START_WAIT_S
    for port in ports:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"No server listens on port {port}.")
            await asyncio.sleep(LOOK_S)


async def _until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + SETTLE_WAIT_S
    while not is_so() and time.monotonic() < give_up_at:  # noqa: ASYNC110 - about all readers at once
        await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
