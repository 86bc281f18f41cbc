"""Requests whose bodies are too large, or large and of an unknown client, or for which there is no room.

They are refused before anything else has read them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from conversations.exceptions import StoreUnavailable
from convserver.api.bodies import TOO_LARGE
from convserver.api.unknown_clients import answer, is_refused
from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from convserver.serving.admission import Permit, ShareUsedUp, admission
from convserver.serving.clients import holder_of_share
from sessions_app.capacity import parsing
from sessions_app.identity.authentication import credentials_of, headers_of
from sessions_app.identity.key_throttle import address_of
from sessions_app.sockets.native.frames import FRAME_MAX_BYTES, FrameTooLarge

OWN_BODIES = "Too many of your large requests are being read. Wait for their answers, then try again."
ALL_BODIES = "Too many large requests are being read. Try again in a few seconds."


class BoundedBodies:
    """An application that answers 413 to bodies that are too large before anything else has read them.

    Bodies of more than UNKNOWN_BODY_MAX_BYTES are read from known clients only, and once there is room for
    them (`Admission.body_place`), which they keep until they are answered.
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
        # Python refuses to read thousands of digits, and 18 are too large a body already.
        elif not length.isdigit() or len(length) > 18 or int(length) > FRAME_MAX_BYTES:
            await _refuse(scope, send)
        elif int(length) <= UNKNOWN_BODY_MAX_BYTES:
            await self.application(scope, receive, send)
        elif (room := await self._room(int(length), scope, send)) is not None:
            try:
                # Before anything of it is received: to receive large bodies takes time of all users.
                await parsing.paced(await _client(scope), int(length))
                await self.application(scope, receive, send)
            finally:
                room.leave()

    async def _room(self, size: int, scope: Any, send: Any) -> Permit | None:
        """Return room for a large body; refuse the request, and return None, if it must not be read."""
        if await is_refused(self.application, scope, send):
            return None
        try:
            return await admission().body_place(size, client=await _client(scope))
        except ShareUsedUp:
            await answer(scope, send, HTTPStatus.TOO_MANY_REQUESTS, "too_many_requests", OWN_BODIES)
        except TimeoutError:
            await answer(scope, send, HTTPStatus.SERVICE_UNAVAILABLE, StoreUnavailable.code, ALL_BODIES)
        return None

    async def _read_first(self, scope: Any, receive: Any, send: Any) -> None:
        """Read a body whose length is not known; once it is large, it has room for the largest."""
        body = bytearray()
        room: Permit | None = None
        more = True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                part = message.get("body", b"")
                body += part
                more = message.get("more_body", False)
                if len(body) > FRAME_MAX_BYTES:
                    await _refuse(scope, send)
                    return
                if len(body) > UNKNOWN_BODY_MAX_BYTES:
                    room = room or await self._room(FRAME_MAX_BYTES, scope, send)
                    if room is None:
                        return
            if room is not None:
                await parsing.paced(await _client(scope), len(body))
            await self._pass_on(body, scope, receive, send)
        finally:
            if room is not None:
                room.leave()

    async def _pass_on(self, body: bytearray, scope: Any, receive: Any, send: Any) -> None:
        if body:
            # A message has one of the two headers at most (RFC 9112 §6.2).
            headers = [pair for pair in scope["headers"] if pair[0] != b"transfer-encoding"]
            scope = {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}
        await self.application(scope, replayed(bytes(body), receive), send)


def replayed(body: bytes, receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that brings this body and then what `receive` brings."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Any:
        return waiting.pop() if waiting else await receive()

    return receive_again


async def _client(scope: Any) -> Any:
    """Return whose share a body is taken from."""
    return await holder_of_share(credentials_of(headers_of(scope)), address_of(scope))


async def _refuse(scope: Any, send: Any) -> None:
    await answer(scope, send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, FrameTooLarge.code, TOO_LARGE)
