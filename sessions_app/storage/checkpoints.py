"""SQLite's checkpoints, made between the appends of a server rather than in their commits."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from django.db import DatabaseError, connection

from conversations.engines.sqlite3 import checkpoints
from sessions_app import astore
from sessions_app.connected_threads import ConnectedThreads

EVERY_S = 0.25
"""During writes there is a checkpoint this often, and one after each long write."""


async def run() -> None:
    """Make checkpoints until cancelled (SQLite)."""
    if connection.vendor != "sqlite":
        return
    threads = ConnectedThreads(1, "checkpoints")
    has_written_long = astore.database().has_written_long
    copied = -1
    try:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await has_written_long.wait()
            has_written_long.clear()
            if (ended := checkpoints.slots_ended()) != copied:
                copied = ended
                # What stands in the way stands in the way of appends, too, which report it.
                with suppress(DatabaseError):
                    await asyncio.get_running_loop().run_in_executor(threads, checkpoints.mark)
                    await asyncio.get_running_loop().run_in_executor(threads, checkpoints.copy_committed)
    finally:
        await threads.close()
