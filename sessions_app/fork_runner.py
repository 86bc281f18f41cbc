"""Copies the events of long forks, beside the process's event loop, and the files of all forks."""

from __future__ import annotations

import asyncio

from conversations.outages import Outage
from conversations.store import copying
from sessions_app import astore
from sessions_app.checkpoints import copies
from sessions_app.imports.looking import look_again

POLL_S = 5.0
"""A fork without a process, or whose hint was lost, continues after this long and its lease."""

_failing = Outage(__name__, "Forks could not be copied", "Forks are copied again")
_files_failing = Outage(__name__, "Files of forks could not be copied", "Files of forks are copied again")


async def copy_files() -> None:
    """Copy the files of forks until cancelled; what is left goes on at their first use."""
    await look_again(
        copies.finish_some,
        news=asyncio.Event(),
        kind=copies.BEGUN,
        pause_s=lambda: POLL_S,
        failing=_files_failing,
    )


class ForkRunner:
    """The unfinished forks that this process copies."""

    def __init__(self) -> None:
        self._held: list[int] = []

    async def run(self) -> None:
        """Copy until cancelled; another process continues what is left."""
        await look_again(
            self._look,
            news=asyncio.Event(),
            kind=copying.BEGUN,
            pause_s=lambda: POLL_S,
            failing=_failing,
        )

    async def _look(self) -> None:
        """Copy until all held forks are done; a fork whose step fails waits for a later look."""
        failed: set[int] = set()
        while True:
            self._held = await astore.change(copying.take, self._held)
            if failed.issuperset(self._held):
                return
            for pk in self._held:
                if pk not in failed and not await self._step(pk):
                    failed.add(pk)

    async def _step(self, pk: int) -> bool:
        """Copy the next events of a fork; log and return False if that fails."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await astore.change(copying.step, pk)
        except Exception as error:  # if it is the database, the next look will notice
            _failing.failed(error, fork=pk)
            return False
        await asyncio.sleep(loop.time() - began)  # half of the time is left to others
        return True
