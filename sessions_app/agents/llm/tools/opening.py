"""The tools of a conversation; without any, no library is imported."""

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
from sessions_app.agents.llm.tools.servers import Found
from sessions_app.settings import client_tools
from sessions_app.settings.client_tools import ClientTool

if TYPE_CHECKING:
    from sessions_app.agents.llm.tools.toolbox import Toolbox


class OpenTools:
    """What a model is offered, and what cannot be."""

    def __init__(self, toolbox: Toolbox | None, notices: Sequence[str], others: Mapping[str, Tool]) -> None:
        self._toolbox = toolbox
        self._others = others
        self.notices: Sequence[str] = [*notices, *(toolbox.notices if toolbox else ())]
        """Sentences for the user about what cannot be used."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by the names under which they are offered."""
        return {**self._others, **(self._toolbox.tools if self._toolbox is not None else {})}

    async def run(
        self, tool: Tool, arguments: Mapping[str, Any], key: str, *, report: ProgressReport
    ) -> Outcome:
        """Run one of `tools`, and return its result or why there is none; `key` is the call's own."""
        if tool.server == NoServer.CLIENT:
            return clients.HANDED_OVER
        if tool.server == NoServer.TURN:
            return named.THOUGHT_KEPT  # `finish` ends the turn instead (`tools.use`)
        return await cast("Toolbox", self._toolbox).run(tool, arguments, key, report=report)

    async def close(self) -> None:
        """Let the tool servers go, and end the programs; a cancellation takes effect after that."""
        if self._toolbox is not None:
            await self._toolbox.close()


class Needed(NamedTuple):
    """What the tools of a conversation depend on, as its settings are now."""

    found: Found
    declared: Sequence[ClientTool]
    named: frozenset[str]


async def needed(conversation: ConversationRef, *, only_reading: bool = False) -> Needed:
    """Return what a conversation's settings say of its tools."""
    found = await astore.call(servers.servers_of, conversation)
    if only_reading:
        return Needed(found, [], frozenset())
    declared = await astore.call(client_tools.declared, conversation)
    return Needed(found, declared, await astore.call(client_tools.named, conversation))


async def open_tools(wanted: Needed, *, only_reading: bool = False) -> OpenTools:
    """Connect the tool servers of a conversation, until the tools are closed.

    `only_reading`: offer only the tools of which their servers say that they change nothing.
    """
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
