"""The indexer: keeps the search index close behind the log without delaying appends."""

from __future__ import annotations

import asyncio

from conversations import live
from conversations.engines.watermark import EventHorizon
from conversations.hints import Hint
from conversations.outages import Outage
from conversations.search import titles
from conversations.search.fulltext import indexing
from conversations.search.fulltext.indexing import IndexingStep
from sessions_app import astore

_failing = Outage(
    __name__, "A step of the search index failed and is tried again", "The search index works again"
)

POLL_S = 10.0
"""The indexer looks for new events about this often, even without a hint."""
GATHER_S = 1.0
"""Appends within this time are indexed together."""
# With more appends than this, the machine is needed for them.
BUSY_PER_S = 20.0
REST_CALM, REST_BUSY = 1.0, 9.0
"""After a step the indexer rests as long as the step took; if there were more than BUSY_PER_S appends a
second, about ten times as long."""


class Indexer:
    """The indexing of one process; of several processes, one makes each step."""

    def __init__(self) -> None:
        self._horizon = EventHorizon()
        self._news = asyncio.Event()
        self._appends = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()

        def hear(hint: Hint) -> None:
            if hint["kind"] == "appended":
                self._appends += 1
                if not self._news.is_set() and not loop.is_closed():
                    loop.call_soon_threadsafe(self._news.set)

        end = live.add_listener(hear)
        try:
            while True:
                # Before looking: a later hint may be about an event that this look does not see.
                self._news.clear()
                await self._catch_up()
                await self._sleep(GATHER_S if self._horizon.settled < self._horizon.newest else POLL_S)
        finally:
            end()

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(GATHER_S)

    async def _catch_up(self) -> None:
        """Make steps until nothing is left."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                began, self._appends = loop.time(), 0
                if await astore.change(titles.step):
                    await self._rest(began)
                    continue
                if (await astore.change(self._step)).is_last:
                    _failing.worked()
                    return
                await self._rest(began)
        except Exception as error:  # the next round retries
            _failing.failed(error)

    async def _rest(self, began: float) -> None:
        loop = asyncio.get_running_loop()
        took = loop.time() - began
        await asyncio.sleep(max(0.01, took * REST_CALM))
        if self._appends > BUSY_PER_S * (loop.time() - began):
            await asyncio.sleep(max(0.25, took * REST_BUSY))

    def _step(self) -> IndexingStep:
        self._horizon.look()
        return indexing.step(self._horizon)
