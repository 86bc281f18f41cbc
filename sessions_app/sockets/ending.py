"""The end of a session, by its first cause, on any wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, cast

from conversations.outages import first_of
from sessions_app.identity.principals import Refused
from sessions_app.sockets.socket import Closed


class Ending(Protocol):
    """What a wire does at each end of a session; nothing is sent to a client that has left."""

    async def end_refused(self, refusal: Refused) -> None:
        """End because the client may not go on, or because everything was sent."""

    async def end_slow(self, error: Exception) -> None:
        """End because the client does not read."""

    async def end_failed(self, error: Exception) -> None:
        """End because the server cannot go on."""


@asynccontextmanager
async def ended(ending: Ending) -> AsyncIterator[None]:
    """End the session by what the block raises, once for each kind of error of tasks that ended together."""
    try:
        yield
    except* Refused as group:
        await ending.end_refused(cast(Refused, first_of(group)))
    except* TimeoutError as group:
        await ending.end_slow(first_of(group))
    except* Closed:
        pass
    except* Exception as group:
        await ending.end_failed(first_of(group))
