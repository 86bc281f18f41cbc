"""Tests of a configured tool server: its tools, or its problems."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sessions_app import astore
from sessions_app.agents.llm import library
from sessions_app.agents.llm.tools.servers import ToolServer, problem_of
from sessions_app.outbound.model_trial import admitted

# Longer than the time that a program has to start.
TOTAL_S = 35.0
TOO_LATE = "The tool server `{name}` didn't answer in time."

_under_way: set[int] = set()
"""The users whose tool servers are being tested."""


class ToolTrial(NamedTuple):
    """The result of a test."""

    tools: Sequence[tuple[str, str]] = ()
    """Their offered names, and descriptions."""
    problems: Sequence[str] = ()
    """Sentences about unusable tools, some with a program's last lines."""
    is_late: bool = False
    """Whether the server did not answer in time."""


async def try_server(user_id: int, server: ToolServer, *, seconds: float = TOTAL_S) -> ToolTrial:
    """Connect a user's tool server, list its tools and close it. Raise TrialUnderWay beyond the limit."""
    with admitted(user_id, _under_way):
        if (problem := await astore.call(problem_of, server, user_id)) is not None:
            return ToolTrial(problems=[problem])
        return await _tried(server, seconds)


async def _tried(server: ToolServer, seconds: float) -> ToolTrial:
    toolbox = (await library.toolbox_class())([server])
    try:
        async with asyncio.timeout(seconds):
            await toolbox.connect()
    except TimeoutError:
        return ToolTrial(problems=[TOO_LATE.format(name=server.name)], is_late=True)
    finally:
        await toolbox.close()
    return ToolTrial([(tool.name, tool.description) for tool in toolbox.tools.values()], toolbox.notices)
