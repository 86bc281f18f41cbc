"""Counting requests by the name of their route, so that no address of a client becomes a metric."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from conversations import counts

_ROUTE = "convserver.route"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "unmatched"
"""Requests that were refused before they had a route, and those at addresses that lead nowhere."""


def name_route(scope: Any, name: str) -> None:
    """Note the route of a request; of several names the last counts."""
    if _ROUTE in scope:  # a list, which copies of the scope share
        scope[_ROUTE][0] = name or UNMATCHED


class MeasuredRequests:
    """An application that counts each request by route, method and status, and how long it took."""

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        # The status of a request that ended without an answer
        client_left = 499
        route, status, began = [UNMATCHED], [client_left], time.monotonic()

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        try:
            await self.application({**scope, _ROUTE: route}, receive, sent)
        except Exception:
            status[0] = 500  # also after an answer began: the client did not get it whole
            raise
        finally:
            method = scope["method"] if scope["method"] in METHODS else counts.OTHER
            counts.add_request(route[0], method, status[0], time.monotonic() - began)
