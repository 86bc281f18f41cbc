"""Requests that the end of the server cancels: each gets an answer instead of a traceback in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from conversations.exceptions import OutcomeUnknown, StoreUnavailable
from convserver.api.unknown_clients import answer

READING = {"GET", "HEAD"}
ENDING = "The server is ending. Try again."
UNKNOWN = "The server is ending, and it is not known whether the request was carried out. Try again."


class AnsweredWhenCancelled:
    """An application that answers 503 to a request that is cancelled before its answer began."""

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        is_begun = False

        async def send_noted(message: Any) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self.application(scope, receive, send_noted)
        except asyncio.CancelledError:  # nothing else cancels a request: its task is the server's own
            is_read = scope["method"] in READING
            code, detail = (StoreUnavailable.code, ENDING) if is_read else (OutcomeUnknown.code, UNKNOWN)
            if not is_begun:
                await answer(scope, send, HTTPStatus.SERVICE_UNAVAILABLE, code, detail)
