"""Two ways to the same views: by what answers before them, and straight."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from convserver.serving.http import OneThreadHandler


class DirectDoors:
    """An application that answers some requests itself, and the views that it leaves the others to."""

    def __init__(self, direct: Callable[[Any], Any]) -> None:
        """`direct` makes the application; it is given what is behind it."""
        self.views = OneThreadHandler()
        self.direct = direct(self._viewed)
        self.left_to_views = 0

    async def _viewed(self, scope: Any, receive: Any, send: Any) -> None:
        self.left_to_views += 1
        await self.views(scope, receive, send)

    @asynccontextmanager
    async def client(self, application: Any, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        """Send requests to one of the two."""
        transport = httpx.ASGITransport(app=application)
        base = "http://localhost"
        async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as client:
            yield client
