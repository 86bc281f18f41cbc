"""The watch of each process: it stores its heartbeat, gathers the figures, and logs long locks.

Its failures are logged and retried; nothing else of the process waits for it.
"""

from __future__ import annotations

import asyncio

from conversations.outages import Outage
from sessions_app import astore
from sessions_app.event_loops import uncancelled
from sessions_app.models import ProcessRole
from sessions_app.operation import figures, heartbeats, waits

_unwritten = Outage(__name__, "The heartbeat could not be stored", "The heartbeat is stored again")
_ungathered = Outage(__name__, "The figures could not be gathered", "The figures are gathered again")


async def run(role: ProcessRole) -> None:
    """Watch until cancelled; record the end of the process then."""
    try:
        while True:
            with _unwritten.counted():
                await astore.change(heartbeats.beat, role)
            # With each heartbeat, so that probes have figures without a query.
            with _ungathered.counted():
                waits.log((await astore.change(figures.gathered)).waits)
            await asyncio.sleep(heartbeats.BEAT_S)
    finally:
        with _unwritten.counted():
            await uncancelled(astore.change(heartbeats.end))
