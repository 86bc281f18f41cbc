"""Hints from a cluster's servers to its workers, which run webhooks, the index and imports.

A hint only wakes them; they look for the work. A lost hint costs a poll's time.
"""

from __future__ import annotations

import asyncio

from conversations import live
from conversations.hints import Hint
from sessions_app.imports.uploads import runs
from sessions_app.live.hub import hub
from sessions_app.webhooks import deliveries

GROUP = "news"
KINDS = frozenset({"appended", "listed", "changed", deliveries.CHANGED, runs.STARTED})
GATHER_S = 0.1
"""Changes within this time share a hint."""


async def tell() -> None:
    """Send a hint to workers after each change of this process, until cancelled."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def hear(hint: Hint) -> None:
        if hint["kind"] in KINDS and not news.is_set() and not loop.is_closed():
            loop.call_soon_threadsafe(news.set)

    end = live.add_listener(hear)
    try:
        while True:
            await news.wait()
            news.clear()
            live.announce(GROUP, {"kind": "news"})
            await asyncio.sleep(GATHER_S)
    finally:
        end()


async def listen() -> None:
    """Wake the dispatcher and the indexer here at each hint, until cancelled."""
    async with hub().subscribe(GROUP) as hints:
        while True:
            await hints.next()  # whatever it is: a look does no harm
            for kind in ("appended", deliveries.CHANGED, runs.STARTED):
                live.tell_listeners({"kind": kind})
