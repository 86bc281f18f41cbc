"""Looking for what is to be done: again and again, and at once when a hint says that there is something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from conversations import live
from conversations.hints import Hint
from conversations.outages import Outage


async def look_again(
    look: Callable[[], Awaitable[None]],
    *,
    news: asyncio.Event,
    kind: str,
    pause_s: Callable[[], float],
    failing: Outage,
) -> None:
    """Call `look` until cancelled.

    Between two calls wait `pause_s()` seconds, or until `news` is set; a hint of this kind sets it.
    A look that fails is logged, and the next one tries again.
    """
    loop = asyncio.get_running_loop()

    def hear(hint: Hint) -> None:
        if hint["kind"] == kind and not loop.is_closed():
            loop.call_soon_threadsafe(news.set)

    end = live.add_listener(hear)
    try:
        while True:
            news.clear()  # before looking: later news may be about something that this look does not see
            with failing.counted():  # a failure is logged, and the next look tries again
                await look()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s()):
                    await news.wait()
    finally:
        end()
