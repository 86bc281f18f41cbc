"""Testing a tool server as it is entered: its tools, or a sentence about why there are none."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from sessions_app import astore
from sessions_app.agents.llm import library
from sessions_app.agents.llm.tools import servers
from sessions_app.agents.llm.tools.servers import ToolServer

TRIALS_MAX = 4
"""At most this many tests run at once in this process, one for each user: each occupies a server thread."""
UNDER_WAY = "Another test is running. Wait until it ends, then test again."
TOO_SLOW = "The tool server `{name}` didn't answer within {seconds:g} seconds."


class ToolTrial(NamedTuple):
    """The names of a server's tools; with a fault there are none."""

    tools: list[str]
    fault: str = ""
    is_late: bool = False


_under_way: set[int] = set()
"""The users whose tool servers are being tested."""


async def try_tool_server(user_id: int, server: ToolServer, *, seconds: float) -> ToolTrial:
    """Connect a tool server and ask for its tools; in the end nothing of it is left."""
    if user_id in _under_way or len(_under_way) >= TRIALS_MAX:
        return ToolTrial([], UNDER_WAY)
    _under_way.add(user_id)
    try:
        if problem := await astore.call(servers.problem, server, user_id):
            return ToolTrial([], problem.format(name=server.name))
        toolbox = (await library.toolbox_class())([server])
        try:
            async with asyncio.timeout(seconds):
                await toolbox.connect()
        except TimeoutError:
            return ToolTrial([], TOO_SLOW.format(name=server.name, seconds=seconds), is_late=True)
        finally:
            await toolbox.close()
        return ToolTrial(
            sorted(each.own_name for each in toolbox.tools.values()), "".join(toolbox.notices[:1])
        )
    finally:
        _under_way.discard(user_id)
