"""The tools of a conversation; without any tool server, no library is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.agents.base import ProgressReport
from sessions_app.agents.llm import library
from sessions_app.agents.llm.tools import clients, named, servers
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.offers import NoServer, Tool
from sessions_app.agents.llm.tools.servers import FoundServers
from sessions_app.settings import client_tools
from sessions_app.settings.client_tools import ClientTool

if TYPE_CHECKING:
    from sessions_app.agents.llm.tools.toolbox import Toolbox


class OpenTools:
    """The offered tools of a model, with their connections."""

    def __init__(self, toolbox: Toolbox | None, notices: Sequence[str], others: Mapping[str, Tool]) -> None:
        self._toolbox = toolbox
        self._others = others
        self.notices: Sequence[str] = [*notices, *(toolbox.notices if toolbox else ())]
        """Sentences for the user about unusable tools."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by their offered names."""
        return {**self._others, **(self._toolbox.tools if self._toolbox is not None else {})}

    async def run(
        self, tool: Tool, arguments: Mapping[str, Any], key: str, *, report: ProgressReport
    ) -> Outcome:
        """Run a tool, and return its outcome; `key` is the call's idempotency key."""
        if tool.server == NoServer.CLIENT:
            return clients.HANDED_OVER
        if tool.server == NoServer.TURN:
            return named.THOUGHT_KEPT  # `finish` ends the turn instead (`tools.use`)
        return await cast("Toolbox", self._toolbox).run(tool, arguments, key, report=report)

    async def close(self) -> None:
        """Close the connections, and end the programs; a cancellation takes effect after that."""
        if self._toolbox is not None:
            await self._toolbox.close()


class Needed(NamedTuple):
    """The present settings of a conversation's tools."""

    found: FoundServers
    declared: Sequence[ClientTool]
    named: frozenset[str]


async def needed(conversation: ConversationRef, *, only_reading: bool = False) -> Needed:
    """Return the present settings of a conversation's tools."""
    found = await astore.call(servers.servers_of, conversation)
    if only_reading:
        return Needed(found, [], frozenset())
    declared = await astore.call(client_tools.declared, conversation)
    return Needed(found, declared, await astore.call(client_tools.named, conversation))


async def open_tools(wanted: Needed, *, only_reading: bool = False) -> OpenTools:
    """Connect the tool servers of a conversation; `only_reading` offers read-only tools alone."""
    clients_own, left_out = clients.offered(wanted.declared)
    others = {**named.offered(wanted.named), **clients_own}
    notices = [*wanted.found.notices, *left_out]
    if not wanted.found.servers:
        return OpenTools(None, notices, others)
    make = await library.toolbox_class()
    toolbox = make(wanted.found.servers, only_reading=only_reading, taken=others)
    try:
        await toolbox.connect()
    except BaseException:
        await toolbox.close()
        raise
    return OpenTools(toolbox, notices, others)
