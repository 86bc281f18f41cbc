"""Two ways to the same views: through the direct path, and straight."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from convserver.api.direct.door import DirectDoor
from convserver.serving.http import OneThreadHandler


class DirectDoors:
    """The direct path, and the views that it leaves other requests to; both read their settings here."""

    def __init__(self) -> None:
        self.views = OneThreadHandler()
        self.direct = DirectDoor(self._viewed)
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
