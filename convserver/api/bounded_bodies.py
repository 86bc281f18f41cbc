"""Requests whose bodies are too large, or large and of nobody who is known: refused before anything else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from convserver.api.bodies import TOO_LARGE
from convserver.api.unknown_clients import answer, is_refused
from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from sessions_app.sockets.native.frames import FRAME_MAX_BYTES, FrameTooLarge


class BoundedBodies:
    """An application that answers 413 to bodies that are too large before anything else has read them.

    Bodies of more than UNKNOWN_BODY_MAX_BYTES are read from known clients only.
    A body that does not say its length (`Transfer-Encoding: chunked`) is read here and passed on with it,
    since Django and the REST framework take a body without a length for none.
    """

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length")
        if length is None:
            await self._read_first(scope, receive, send)
        elif not length.isdigit() or len(length) > 18 or int(length) > FRAME_MAX_BYTES:
            await _refuse(scope, send)
        elif int(length) <= UNKNOWN_BODY_MAX_BYTES or not await is_refused(self.application, scope, send):
            await self.application(scope, receive, send)

    async def _read_first(self, scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()
        is_known = False
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > FRAME_MAX_BYTES:
                await _refuse(scope, send)
                return
            if len(body) > UNKNOWN_BODY_MAX_BYTES and not is_known:
                if await is_refused(self.application, scope, send):
                    return
                is_known = True
        if body:
            headers = [pair for pair in scope["headers"] if pair[0] != b"transfer-encoding"]
            scope = {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}
        await self.application(scope, replayed(bytes(body), receive), send)


def replayed(body: bytes, receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that brings this body and then what `receive` brings."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Any:
        return waiting.pop() if waiting else await receive()

    return receive_again


async def _refuse(scope: Any, send: Any) -> None:
    await answer(scope, send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, FrameTooLarge.code, TOO_LARGE)
