"""The tools `think` and `finish` of agents whose start names them (spec V1 §4.5).

Neither has an effect outside of the log, so no policy asks the user to approve them.
"""

from __future__ import annotations

from collections.abc import Collection

from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.offers import NoServer, Tool

THINK = "think"
FINISH = "finish"
THOUGHT_KEPT = Outcome("The thought is in the log.")


def _tool(name: str, description: str, argument: str, meaning: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    }
    return Tool(
        name=name, description=description, schema=schema, server=NoServer.TURN, own_name=name, risk="LOW"
    )


_TOOLS = (
    _tool(
        THINK,
        "Write down a thought before you go on: weigh several ways, or plan the next steps. It reads nothing "
        "and changes nothing.",
        "thought",
        "The thought.",
    ),
    _tool(
        FINISH,
        "End the task: it is done, or you cannot go on without the user.",
        "message",
        "The last words to the user: what was done, with what result, and what is open.",
    ),
)


def offered(names: Collection[str]) -> dict[str, Tool]:
    """Return the tools with these names."""
    return {tool.name: tool for tool in _TOOLS if tool.name in names}
