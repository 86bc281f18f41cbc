"""The MCP door over stdio: the client starts `convserver mcp`, which reads the database itself."""

from __future__ import annotations

import asyncio

from mcp.server.stdio import stdio_server

from convserver.mcp.native import NativeDoor
from convserver.mcp.server import server
from convserver.serving.doors import application as http
from sessions_app import astore


def serve(token: str) -> None:
    """Answer until the input ends, as the owner of the token, which may be empty in local mode."""
    asyncio.run(_serve(token))


async def _serve(token: str) -> None:
    answering = server(lambda _: NativeDoor(http, token=token))
    try:
        async with stdio_server() as (read, write):
            await answering.run(read, write, answering.create_initialization_options())
    finally:
        await astore.close()  # its threads would keep the process from ending
