"""Runs imports in this process, beside its event loop: takes those that wait, and says that it is there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from conversations.outages import Outage
from sessions_app import astore
from sessions_app.housekeeping import take_round
from sessions_app.imports.looking import look_again
from sessions_app.imports.uploads import leases, runs
from sessions_app.imports.uploads.leases import Held
from sessions_app.imports.uploads.work import ImportWork
from sessions_app.models import RUNS_MAX, ImportRun
from sessions_app.processes import this_process

# An import that another process has left has no hint, and hints may be lost.
POLL_S = 10.0
END_WAIT_S = 3.0

_failing = Outage(__name__, "Imports could not be looked after", "Imports are looked after again")


class ImportRunner:
    """The imports of one process; of several processes, one runs each import."""

    def __init__(self) -> None:
        self._works: dict[Held, ImportWork] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Run imports until cancelled; another process continues those that run then."""
        # People watch the progress, and wait for a cancel.
        tend_s = 1.0
        try:
            await look_again(
                self._look,
                news=self._news,
                kind=runs.STARTED,
                pause_s=lambda: tend_s if self._works else POLL_S,
                failing=_failing,
            )
        finally:
            await self._stop()

    async def _look(self) -> None:
        if self._works:
            await self._tend()
        while len(self._works) < RUNS_MAX:
            run = await astore.change(leases.claim, this_process())
            if run is None:
                break
            self._begin(run)
        tidy_s = 3600.0
        if await astore.change(take_round, "imports", tidy_s):
            await astore.change(runs.tidy)

    async def _tend(self) -> None:
        progress = {held: work.progress.columns() for held, work in self._works.items()}
        kept = await astore.change(leases.renew, progress)
        for held in progress:
            if (work := self._works.get(held)) is not None:
                work.progress.is_cancelled = kept.get(held, False)
                work.progress.is_stopped = held not in kept  # another process has taken it over

    def _begin(self, run: ImportRun) -> None:
        loop = asyncio.get_running_loop()
        held = Held(run.pk, run.attempt)
        work = self._works[held] = ImportWork(run=run)

        def then() -> None:
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                loop.call_soon_threadsafe(partial(self._ended, held))

        work.begin(then)

    def _ended(self, held: Held) -> None:
        self._works.pop(held, None)
        self._news.set()  # another one may begin

    async def _stop(self) -> None:
        """End each thread at its next record; they release their imports."""
        for work in self._works.values():
            work.progress.is_stopped = True
        with suppress(TimeoutError):
            async with asyncio.timeout(END_WAIT_S):
                while self._works:
                    self._news.clear()
                    await self._news.wait()
