"""Faults of every installation: its servers, the network before them, the clock, and the guards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from faults.suite.fault import Fault, hold
from faults.suite.installations import Installation, OnSQLite
from faults.suite.proxy import Way

HOUR_S = 3600.0
GUARDS = ("event_refuse_delete", "event_refuse_update")
NEWEST = "(SELECT max(id) FROM conversations_event)"
OUTRAGES = (
    f"DELETE FROM conversations_event WHERE id = {NEWEST}",
    f"UPDATE conversations_event SET payload = '{{{{}}}}' WHERE id = {NEWEST}",
)
"""What the guards refuse."""


async def kill(installation: Installation, rng: random.Random) -> None:
    """End a server at any moment, and start it again."""
    server = rng.choice(installation.servers)
    await hold(rng, 0.0, 0.3)
    server.kill()
    await server.start()


async def stop(installation: Installation, rng: random.Random) -> None:
    """Ask a server to end, and start it again."""
    server = rng.choice(installation.servers)
    await asyncio.to_thread(server.stop)
    await server.start()


async def freeze(installation: Installation, rng: random.Random) -> None:
    """Stop a server where it is, and let it go on."""
    server = rng.choice(installation.servers)
    server.freeze()
    try:
        await hold(rng, 0.5, 2.5)
    finally:
        server.thaw()


async def cut_clients(installation: Installation, rng: random.Random) -> None:
    """Reset the connections of clients, a few times."""
    for _ in range(4):
        for proxy in installation.client_proxies:
            proxy.cut()
        await hold(rng, 0.05, 0.3)


async def half_close_clients(installation: Installation, rng: random.Random) -> None:
    """End one direction of the connections of clients."""
    for proxy in installation.client_proxies:
        proxy.half_close()
    await hold(rng, 0.1, 0.5)


def network_of_clients(way: Way) -> Callable[[Installation, random.Random], Awaitable[None]]:
    """Return a fault of the network between clients and servers."""

    async def inject(installation: Installation, rng: random.Random) -> None:
        for proxy in installation.client_proxies:
            proxy.set(way)
        try:
            await hold(rng, 0.5, 1.5)
        finally:
            for proxy in installation.client_proxies:
                proxy.set(Way.OPEN)

    return inject


async def move_clock(installation: Installation, rng: random.Random) -> None:
    """Let the time of day jump back by an hour, then ahead by half a day, then be right again.

    By less than a day, for which a key is kept: a create that is repeated later creates again.
    """
    try:
        for offset_s in (-HOUR_S, 12 * HOUR_S):
            for clock in installation.clocks:
                clock.offset_s = offset_s
            await hold(rng, 0.3, 0.8)
    finally:
        for clock in installation.clocks:
            clock.offset_s = 0.0


async def drop_guards(installation: Installation, rng: random.Random) -> None:
    """Drop guards from outside, start a server anew, which puts them back, and try to change events."""
    on = "" if isinstance(installation, OnSQLite) else " ON conversations_event"
    for guard in GUARDS:
        await asyncio.to_thread(installation.ask, f"DROP TRIGGER IF EXISTS {guard}{on}")
    server = installation.servers[0]
    server.kill()
    await server.start()
    for outrage in OUTRAGES:
        with suppress(Exception):  # the database refuses it
            await asyncio.to_thread(installation.ask, outrage)


FAULTS = [
    Fault(name="server killed (kill -9)", rows=("FI-03", "FI-33"), inject=kill, counts_from_begin=True),
    Fault(name="server ended (SIGTERM)", rows=("FI-42",), inject=stop, counts_from_begin=True),
    Fault(name="server stopped (SIGSTOP) and continued", rows=("FI-09",), inject=freeze),
    Fault(name="connections of clients reset", rows=("FI-12", "FI-23"), inject=cut_clients),
    Fault(name="connections of clients half-closed", rows=("FI-23",), inject=half_close_clients),
    Fault(name="slow network of clients", rows=("FI-24", "FI-25"), inject=network_of_clients(Way.SLOW)),
    Fault(name="network of clients without a sound", rows=("FI-23",), inject=network_of_clients(Way.DEAF)),
    Fault(name="clock back an hour, ahead half a day", rows=("FI-30",), inject=move_clock),
    Fault(name="guard dropped from outside", rows=("FI-31",), inject=drop_guards, counts_from_begin=True),
]
