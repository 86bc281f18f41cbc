"""How far git is, read from what it writes while it works."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from sessions_app.shell_commands.piped import Take

_STEP = re.compile(
    rb"(?:remote: )?(?P<what>[A-Z][a-z]+(?: [a-z]+)*): +\d+% \((?P<done>\d+)/(?P<total>\d+)\)"
    rb"(?P<more>, [^\r\n,]+)?"
)


class CloneReport(Protocol):
    """The callback that shows how far a clone is."""

    async def __call__(self, text: str, *, done: float | None, total: float | None) -> None: ...


@asynccontextmanager
async def reported(report: CloneReport) -> AsyncIterator[Take]:
    """Give what takes the output of git, of which the newest step is shown now and then."""
    newest: re.Match[bytes] | None = None
    has_more = asyncio.Event()

    def take(piece: bytes) -> bool:
        nonlocal newest
        if steps := list(_STEP.finditer(piece)):
            newest = steps[-1]
            has_more.set()
        return True

    async def tell() -> None:
        pause_s = 0.5  # readers see no more of them
        while True:
            await has_more.wait()
            has_more.clear()
            if newest is not None:
                text = f"{newest['what'].decode()}{(newest['more'] or b'').decode(errors='replace')}"
                await report(text, done=float(newest["done"]), total=float(newest["total"]))
            await asyncio.sleep(pause_s)

    telling = asyncio.create_task(tell())
    try:
        yield take
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
