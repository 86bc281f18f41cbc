"""Large bodies of unauthenticated clients are refused unread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from conversations.exceptions import StoreUnavailable
from conversations.outages import Outage
from convserver.api.errors import RETRY_AFTER_S, is_for_programs
from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from sessions_app import astore
from sessions_app.identity.authentication import credentials_of, headers_of, lets_everybody_in, visitor
from sessions_app.identity.conversation_keys import opened_by
from sessions_app.refusals import log_request_refused
from sessions_app.sockets.v0 import server

TOO_LARGE = f"Log in before you send a body of more than {UNKNOWN_BODY_MAX_BYTES} bytes."
NOT_NOW = "The server cannot check credentials now. Try again in a few seconds."
CREDENTIALS = {b"x-session-api-key", b"authorization", b"cookie"}

_unchecked = Outage(__name__, "The client of a large body could not be authenticated")


async def is_refused(application: Callable[..., Awaitable[None]], scope: Any, send: Any) -> bool:
    """Refuse a request with a large body, and return True, unless its client is known."""
    try:
        # The cheapest first: the last one asks the database.
        if lets_everybody_in() or await server.is_connected(scope) or await astore.call(_is_known, scope):
            return False
    # Refused also then: otherwise unknown clients could send anything while the database is away.
    except Exception as error:
        _unchecked.failed(error, path=scope["path"])
        await answer(scope, send, HTTPStatus.SERVICE_UNAVAILABLE, StoreUnavailable.code, NOT_NOW)
        return True
    if is_for_programs(scope["path"]):
        await application(_anonymous(scope), _nothing_comes(), send)
    else:
        await answer(scope, send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "payload_too_large", TOO_LARGE)
    return True


async def answer(scope: Any, send: Any, status: HTTPStatus, code: str, detail: str) -> None:
    """Answer a request that no view sees: {code, detail}."""
    log_request_refused(scope, status=status, code=code)
    body = json.dumps({"code": code, "detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_known(scope: Any) -> bool:
    credentials = credentials_of(headers_of(scope))
    if credentials.api_key is not None and opened_by(credentials.api_key) is not None:
        return True
    return visitor(credentials).is_authenticated


def _anonymous(scope: Any) -> Any:
    """Return the request without a body and without credentials: its door refuses it in its own words."""
    # The credentials were wrong. If they were right by now, the door would take the empty body for the whole.
    left_out = {*CREDENTIALS, b"content-length", b"transfer-encoding", b"expect"}
    headers = [pair for pair in scope["headers"] if pair[0].lower() not in left_out]
    return {**scope, "headers": [*headers, (b"content-length", b"0")]}


def _nothing_comes() -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that brings an empty body, and nothing after it."""
    waiting = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        # For good: Django takes any further message for the end of the connection.
        return waiting.pop() if waiting else await asyncio.Event().wait()

    return receive
