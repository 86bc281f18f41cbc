"""Faults of PostgreSQL, of Redis, and of the network before them."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from signal import SIGCONT, SIGSTOP

import psutil
import psycopg
import redis

from faults.instances import OWN_NAME, Instance, PostgreSQL
from faults.suite.fault import Fault, hold
from faults.suite.installations import OnPostgreSQL
from faults.suite.proxy import Proxy, Way

Inject = Callable[[OnPostgreSQL, random.Random], Awaitable[None]]
HOUR_S = 3600.0
LOST_COMMITS = 3
LOST_AND_READ_ONLY = "answers to commits lost, and new sessions read-only"
FAILOVERS, FAILOVER_S, BETWEEN_S = 3, (0.5, 1.0), (0.1, 0.3)
NONSENSE = (b"\xc1 no msgpack", b"", b"\x81\xa4kind\xa8appended")


async def terminate(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Let an administrator end all sessions, twice."""
    for _ in range(2):
        await hold(rng, 0.0, 0.2)
        await asyncio.to_thread(installation.postgresql.terminate_sessions)


async def restart_database(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Kill all processes of PostgreSQL, and start it again."""
    await hold(rng, 0.0, 0.2)
    await asyncio.to_thread(installation.postgresql.restart)


def lock(statement: str) -> Inject:
    """Return a fault in which another session holds what the statement locks."""

    async def inject(installation: OnPostgreSQL, rng: random.Random) -> None:
        url = installation.postgresql.url
        async with await psycopg.AsyncConnection.connect(url, application_name=OWN_NAME) as session:
            await session.execute(statement.encode())
            await hold(rng, 0.5, 2.5)
            await session.rollback()

    return inject


async def exhaust(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Let PostgreSQL have no connection for the servers, and end those that they have."""
    postgresql = installation.postgresql
    limit = "ALTER DATABASE postgres WITH ALLOW_CONNECTIONS {}"
    other = postgresql.url.removesuffix("postgres") + "template1"
    await asyncio.to_thread(_alter, other, limit.format("false"))
    try:
        await hold(rng, 0.5, 2.0)
    finally:
        await asyncio.to_thread(_alter, other, limit.format("true"))


def _alter(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True, application_name=OWN_NAME) as session:
        session.execute(statement.encode())
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = 'postgres' AND application_name <> %s",
            [OWN_NAME],
        )


async def make_read_only(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Let all sessions be read-only, as on a primary that has become a standby."""
    postgresql = installation.postgresql
    await asyncio.to_thread(_set_read_only, postgresql, "on")
    try:
        await hold(rng, 0.5, 2.0)
    finally:
        await asyncio.to_thread(_set_read_only, postgresql, "off")


def _set_read_only(postgresql: PostgreSQL, value: str) -> None:
    postgresql.ask(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    postgresql.ask("SELECT pg_reload_conf()")


def freeze(which: Callable[[OnPostgreSQL], Instance]) -> Inject:
    """Return a fault in which a program takes connections and answers nothing."""

    async def inject(installation: OnPostgreSQL, rng: random.Random) -> None:
        family = which(installation).family()
        _signal(family, SIGSTOP)
        try:
            await hold(rng, 0.5, 2.0)
        finally:
            _signal(family, SIGCONT)

    return inject


def _signal(family: list[psutil.Process], number: int) -> None:
    for each in family:
        if each.is_running():
            os.kill(each.pid, number)


def network(which: Callable[[OnPostgreSQL], Proxy], way: Way) -> Inject:
    """Return a fault of the network before a program."""

    async def inject(installation: OnPostgreSQL, rng: random.Random) -> None:
        proxy = which(installation)
        proxy.set(way)
        if way is Way.SHUT:
            proxy.cut()
        try:
            await hold(rng, 0.5, 2.0)
        finally:
            proxy.set(Way.OPEN)

    return inject


async def cut_database(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Reset the servers' connections to PostgreSQL, a few times."""
    for _ in range(4):
        installation.database_proxy.cut()
        await hold(rng, 0.05, 0.3)


async def half_close_database(installation: OnPostgreSQL, rng: random.Random) -> None:
    """End one direction of the servers' connections to PostgreSQL."""
    installation.database_proxy.half_close()
    await hold(rng, 0.1, 0.5)


async def lose_commits(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Cut connections when a commit is done and before that is told."""
    installation.database_proxy.lose_commits(LOST_COMMITS)
    await hold(rng, 0.5, 1.0)
    installation.database_proxy.lose_commits(0)


async def lose_commits_and_fail_over(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Cut all connections when a commit is done and before that is told; what connects again cannot write.

    So it is when a network fails over: a server that looks for the outcome reaches a standby, or a primary
    that became one.
    """
    postgresql = installation.postgresql
    for _ in range(FAILOVERS):
        await asyncio.to_thread(_set_new_sessions_read_only, postgresql, "on")
        try:
            installation.database_proxy.lose_commits(1, with_all=True)
            await hold(rng, *FAILOVER_S)
        finally:
            installation.database_proxy.lose_commits(0)
            await asyncio.to_thread(_set_new_sessions_read_only, postgresql, "off")
        await hold(rng, *BETWEEN_S)


def _set_new_sessions_read_only(postgresql: PostgreSQL, value: str) -> None:
    """Let sessions that begin from now on be read-only; those that there are stay as they are."""
    other = postgresql.url.removesuffix("postgres") + "template1"
    with psycopg.connect(other, autocommit=True, application_name=OWN_NAME) as session:
        session.execute(f"ALTER DATABASE postgres SET default_transaction_read_only = {value}".encode())


async def skew_host(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Let the clock of one server be an hour ahead, then an hour behind, while the others are right."""
    clock = rng.choice(installation.clocks)
    try:
        for offset_s in (HOUR_S, -HOUR_S):
            clock.offset_s = offset_s
            await hold(rng, 0.5, 1.0)
    finally:
        clock.offset_s = 0.0


async def restart_redis(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Kill Redis, and start it again a little later."""
    await asyncio.to_thread(installation.redis.kill)
    await hold(rng, 0.3, 1.5)
    await asyncio.to_thread(installation.redis.start)


async def flush_redis(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Remove all that Redis holds."""
    await asyncio.to_thread(installation.redis.flush)
    await hold(rng, 0.1, 0.5)


async def send_nonsense(installation: OnPostgreSQL, rng: random.Random) -> None:
    """Send what is no hint to every channel that the servers listen to."""
    with redis.Redis(port=installation.redis.port, socket_timeout=60) as client:
        for channel in client.pubsub_channels():
            for message in NONSENSE:
                client.publish(channel, message)
    await hold(rng, 0.1, 0.5)


FAULTS: list[Fault[OnPostgreSQL]] = [
    Fault(
        name="sessions of PostgreSQL terminated", rows=("FI-32",), inject=terminate, counts_from_begin=True
    ),
    Fault(
        name="PostgreSQL killed and restarted",
        rows=("FI-32", "FI-33"),
        inject=restart_database,
        counts_from_begin=True,
    ),
    Fault(
        name="rows of conversations locked",
        rows=("FI-32",),
        inject=lock("SELECT 1 FROM conversations_conversation FOR UPDATE"),
    ),
    Fault(
        name="table of events locked",
        rows=("FI-32",),
        inject=lock("LOCK TABLE conversations_event IN ACCESS EXCLUSIVE MODE"),
    ),
    Fault(name="PostgreSQL without connections", rows=("FI-32",), inject=exhaust),
    Fault(name="PostgreSQL read-only", rows=("FI-32",), inject=make_read_only),
    Fault(name="PostgreSQL frozen", rows=("FI-32",), inject=freeze(lambda it: it.postgresql)),
    Fault(name="connections to PostgreSQL reset", rows=("FI-32",), inject=cut_database),
    Fault(name="connections to PostgreSQL half-closed", rows=("FI-32",), inject=half_close_database),
    Fault(
        name="network to PostgreSQL down",
        rows=("FI-32",),
        inject=network(lambda it: it.database_proxy, Way.SHUT),
    ),
    Fault(
        name="network to PostgreSQL without a sound",
        rows=("FI-32",),
        inject=network(lambda it: it.database_proxy, Way.DEAF),
    ),
    Fault(
        name="slow network to PostgreSQL",
        rows=("FI-24",),
        inject=network(lambda it: it.database_proxy, Way.SLOW),
    ),
    Fault(name="answers to commits lost", rows=("FI-12",), inject=lose_commits),
    Fault(name=LOST_AND_READ_ONLY, rows=("FI-12", "FI-32"), inject=lose_commits_and_fail_over),
    Fault(name="clock of one server an hour off", rows=("FI-30",), inject=skew_host),
    Fault(name="Redis killed and restarted", rows=("FI-24",), inject=restart_redis),
    Fault(name="Redis flushed", rows=("FI-24",), inject=flush_redis),
    Fault(name="Redis frozen", rows=("FI-24",), inject=freeze(lambda it: it.redis)),
    Fault(name="network to Redis down", rows=("FI-24",), inject=network(lambda it: it.redis_proxy, Way.SHUT)),
    Fault(name="nonsense sent by Redis", rows=("FI-24",), inject=send_nonsense),
]
