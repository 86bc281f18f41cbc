"""Tools that a V1 client has declared: the event itself hands it a call, and the agent continues.

The wire has no way to return a result: the client may report it in a message.
"""

from __future__ import annotations

from collections.abc import Sequence

from conversations.dialects import v1
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.offers import (
    RESERVED,
    Listed,
    NoServer,
    Tool,
    is_bounded,
    nameable,
    tool_of,
)
from sessions_app.settings.client_tools import ClientTool

HANDED_OVER = Outcome(
    "The call was handed to the user's client, which carries it out. What comes of it is not known unless "
    "the user says it."
)
LEFT_OUT = (
    "The client's tool `{name}` can't be offered to a model: its name or schema is one that a model or this "
    "server can't use."
)


def offered(declared: Sequence[ClientTool]) -> tuple[dict[str, Tool], list[str]]:
    """Return the tools of a client, under their own names, and sentences about what is left out."""
    tools: dict[str, Tool] = {}
    notices: list[str] = []
    for each in declared:
        tool = _tool(each)
        if tool is None:
            notices.append(LEFT_OUT.format(name=nameable(each.name)))
        else:
            tools[tool.name] = tool
    return tools, notices


def _tool(declared: ClientTool) -> Tool | None:
    is_named = nameable(declared.name) == declared.name and declared.name.lower() not in RESERVED
    if not (is_named and v1.is_client_schema(declared.schema) and is_bounded(declared.schema)):
        return None
    schema = {"properties": {}, **declared.schema, "type": "object"}
    return tool_of(Listed(**{**declared._asdict(), "schema": schema}), NoServer.CLIENT, declared.name)
