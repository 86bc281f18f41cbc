"""The connected tool servers of one turn.

Imported late (`library`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import structlog
from mcp import MCPError
from mcp_types import PARSE_ERROR

from conversations.dialects import columns
from conversations.payloads import halves
from sessions_app.agents.base import ProgressReport
from sessions_app.agents.llm.faults import CallLate, ToolFault
from sessions_app.agents.llm.tools import messages, offers, results
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.connections import ToolConnection
from sessions_app.agents.llm.tools.offers import Listed, Tool
from sessions_app.agents.llm.tools.servers import ToolServer
from sessions_app.event_loops import uncancelled

logger = structlog.stdlib.get_logger(__name__)

UNUSABLE = "The tool server `{name}` can't be used: {why}."
NO_RESULT = "The call of `{tool}` has no result: the tool server `{name}` failed, because {why}."


class Toolbox:
    """Connected tool servers, and what they offer."""

    def __init__(
        self, servers: Sequence[ToolServer], *, only_reading: bool = False, taken: Collection[str] = ()
    ) -> None:
        """`taken` are names of other tools."""
        self._only_reading = only_reading
        self._taken = taken
        self._connections = [ToolConnection(server) for server in servers]
        self.tools: Mapping[str, Tool] = {}
        """By their offered names."""
        self.notices: list[str] = []
        """Sentences about unusable servers and tools."""

    async def connect(self) -> None:
        """Connect all servers, and list their tools."""
        found = await asyncio.gather(*(_tools_of(each) for each in self._connections))
        names = [each.server.name for each in self._connections]
        reads = self._only_reading
        lists = [[tool for tool in tools if tool.is_read_only or not reads] for tools, _ in found]
        self.tools, left_out = offers.offered(list(zip(names, lists, strict=True)), taken=self._taken)
        self.notices = [notice for _, notices in found for notice in notices] + left_out

    def source_of(self, tool: Tool) -> str:
        """Return the fingerprint of a tool's server."""
        return self._connections[tool.server].server.fingerprint

    async def run(
        self, tool: Tool, arguments: Mapping[str, Any], key: str, *, report: ProgressReport
    ) -> Outcome:
        """Run a tool, and return its outcome; `key` is the call's idempotency key."""
        connection = await self._open(tool.server)
        try:
            # A call that was approved comes from the log, which keeps halves of characters.
            result = await connection.call(tool.own_name, halves.whole_value(arguments), key, report=report)
        except MCPError as error:
            return Outcome(text=_said(error), is_error=True)
        except ToolFault as fault:
            logger.info("A tool failed", kind=connection.server.way.value, error=str(fault))
            # A server that is late only once may answer the next call.
            if connection.is_stuck or not isinstance(fault, CallLate):
                connection.fail(fault)
            why = NO_RESULT.format(tool=tool.name, name=connection.server.name, why=fault)
            return Outcome(text=fault.told(why), is_error=True)
        # Megabytes of images are decoded and encoded again.
        return await asyncio.to_thread(results.outcome_of, result)

    async def _open(self, number: int) -> ToolConnection:
        """Return the connection to a server, a new one if it has broken."""
        if not self._connections[number].is_open:
            await self._connections[number].close()
            self._connections[number] = ToolConnection(self._connections[number].server)
        return self._connections[number]

    async def close(self) -> None:
        """Close the connections, and end the programs; a cancellation takes effect after that."""
        await uncancelled(asyncio.gather(*(each.close() for each in self._connections)))


async def _tools_of(connection: ToolConnection) -> tuple[list[Listed], list[str]]:
    """Return the tools of a server, and sentences about unusable ones."""
    name = connection.server.name
    try:
        tools, left_out = offers.listed(await connection.tools())
    except ToolFault as fault:
        connection.fail(fault)
        return [], [fault.told(UNUSABLE.format(name=name, why=fault))]
    return tools, [offers.unusable(name, left_out)] if left_out else []


def _said(error: MCPError) -> str:
    """Return a server's words about a refused call."""
    if error.error.code == PARSE_ERROR:  # the library's words hold what it could not read
        return messages.UNREADABLE
    return results.bounded(columns.clean(error.message)) or messages.UNREADABLE
