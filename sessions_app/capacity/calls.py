"""HTTP calls that have no answer yet, for work that gives way to them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sessions_app.event_loops import PerEventLoop


class Calls:
    """The calls that are waited for, each for a limited time."""

    def __init__(self) -> None:
        self._calls: set[object] = set()
        self._none = asyncio.Event()
        self._none.set()

    @property
    def are_waiting(self) -> bool:
        """Say whether any call is counted; threads may ask as well."""
        return bool(self._calls)

    def begin(self, call: object, *, for_s: float) -> None:
        """Count a call, at most for so long."""
        self._calls.add(call)
        self._none.clear()
        asyncio.get_running_loop().call_later(for_s, self.end, call)

    def end(self, call: object) -> None:
        """Stop counting it; a second time changes nothing."""
        self._calls.discard(call)
        if not self._calls:
            self._none.set()

    async def pass_by(self, *, within_s: float) -> None:
        """Return once none is counted, or after this time."""
        await asyncio.sleep(0)  # a call that has arrived by now is counted
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._none.wait()


_recent = PerEventLoop(Calls)


def get_recent_calls() -> Calls:
    """Return the calls of the running event loop that are younger than `replay_throttle.CALL_S`."""
    return _recent.get()
