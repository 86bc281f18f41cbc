"""A tool server at an address of loopback: the library's own server, over streamable HTTP or SSE."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer

from tests.support.people.scripted_agent import until_here

HALF, PAIR = "<half>", "<whole_pair>"
"""In what is sent, these words are escapes of as many characters, which the library would not write."""


@asynccontextmanager
async def tool_server(kind: str, *, key: str = "") -> AsyncIterator[tuple[str, list[str]]]:
    """Serve the tool `add`; yield the URL, and what is run meanwhile. With a key, others get a 401."""
    ran: list[str] = []
    server = MCPServer("adding")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        ran.append(f"add {a} {b}")
        return str(a + b)

    @server.tool()
    def halve() -> str:
        """Return half of an emoji."""
        return f"rain {HALF}, a pair {PAIR}"

    app = server.sse_app() if kind == "sse" else server.streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and key and given != f"Bearer {key}":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return

        async def halved(message: Any) -> None:
            body = (
                message.get("body", b"")
                .replace(HALF.encode(), rb"\ud83c")
                .replace(PAIR.encode(), rb"\ud83c\udf27")
            )
            await send({**message, "body": body} if "body" in message else message)

        await app(scope, receive, halved)

    config = uvicorn.Config(guarded, port=0, log_level="critical", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running.serve())
    try:
        await until_here(lambda: running.started)
        port = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}", ran
    finally:
        running.should_exit = True
        await serving
