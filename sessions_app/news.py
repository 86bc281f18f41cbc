"""How the workers of a cluster hear soon of what its servers store: webhooks, the index, imports are theirs.

One hint says that there is something, and not what: they look. A hint that is lost costs a poll's time.
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
"""What is stored within this time is told of together."""


async def tell() -> None:
    """Tell workers, until cancelled, whenever this process has stored something."""
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
    """Let the dispatcher and the indexer here look, until cancelled, whenever a server tells of something."""
    async with hub().subscribe(GROUP) as hints:
        while True:
            await hints.next()  # whatever it is, to look does no harm
            for kind in ("appended", deliveries.CHANGED, runs.STARTED):
                live.tell_listeners({"kind": kind})
