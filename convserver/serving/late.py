"""Parts of the server that are imported when they are first asked."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from django.utils.module_loading import import_string


class LateApplication:
    """An ASGI application that is imported for its first connection, in a thread, and stays.

    A process that only serves sockets and probes never needs its memory, and starts without its time.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._application: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._application is None:  # two first requests import it once: Python locks the import
            self._application = await asyncio.to_thread(import_string, self._path)
            gc.freeze()  # it stays, like all that was imported at the start: nothing there is garbage
        await self._application(scope, receive, send)
