"""The MCP door over HTTP, `POST /mcp`: requests have no session, so any process may answer them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from convserver.api.direct.callers import Asked, get_callers
from convserver.api.errors import LOG_IN, RETRY_AFTER_S, UNAVAILABLE
from convserver.mcp.native import NativeDoor
from convserver.mcp.server import server
from convserver.serving.clients import holder_of_share
from convserver.serving.doors import application as http
from sessions_app.event_loops import PerEventLoop
from sessions_app.identity.authentication import credentials_of, headers_of
from sessions_app.identity.key_throttle import address_of
from sessions_app.models import Scope

NO_STREAM = "This door sends nothing by itself: POST each message."
NO_DATABASE = "The server could not reach its database. Try again."


class McpDoor:
    """The ASGI application: an MCP server for clients that may read."""

    def __init__(self, make_server: Callable[[], Server[Any]]) -> None:
        # The library's server belongs to the event loop on which it was made.
        self._running = PerEventLoop(lambda: _Running(make_server()))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # A GET would open a stream for messages of the server, a DELETE end a session: there is neither.
        if scope["method"] != "POST":
            await _refuse(send, HTTPStatus.METHOD_NOT_ALLOWED, NO_STREAM, ("allow", "POST"))
            return
        # Here once, before the library reads the body; the native door checks each call again.
        try:
            is_known = await _may_read(scope)
        except UNAVAILABLE:
            retry = ("retry-after", str(RETRY_AFTER_S))
            await _refuse(send, HTTPStatus.SERVICE_UNAVAILABLE, NO_DATABASE, retry)
            return
        if not is_known:
            await _refuse(send, HTTPStatus.UNAUTHORIZED, LOG_IN, ("www-authenticate", "Bearer"))
            return
        manager = await self._running.get().manager()
        await manager.handle_request(scope, receive, send)


async def _may_read(scope: Any) -> bool:
    # Pages of this site have no use for this door, so that their session is not a credential here.
    credentials = replace(credentials_of(headers_of(scope)), session_key=None)
    share = await holder_of_share(credentials, address_of(scope))
    if not isinstance(share, int):
        return False
    asked = Asked(credentials, None, Scope.READ, takes_conversation_keys=False)
    return await get_callers().find(asked, share) is not None


class _Running:
    """The library's manager, which runs as a task of its event loop from the first request on."""

    def __init__(self, answering: Server[Any]) -> None:
        body_max_bytes = 256 * 1024
        self._manager = StreamableHTTPSessionManager(
            answering,
            json_response=True,
            stateless=True,  # any process may answer the next request
            max_request_body_size=body_max_bytes,
        )
        self._is_ready = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def manager(self) -> StreamableHTTPSessionManager:
        """Return the manager once it runs."""
        await self._is_ready.wait()
        return self._manager

    async def _run(self) -> None:
        async with self._manager.run():
            self._is_ready.set()
            await asyncio.get_running_loop().create_future()  # until the event loop ends


async def _refuse(send: Any, status: HTTPStatus, detail: str, header: tuple[str, str]) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(body))), header]
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


application = McpDoor(lambda: server(lambda request: NativeDoor(http, request.scope)))
