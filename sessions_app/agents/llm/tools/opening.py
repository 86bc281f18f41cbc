"""The tools of a conversation, opened for one turn; without any, no library is imported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.agents.llm import library
from sessions_app.agents.llm.tools import clients, servers
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.offers import CLIENT, Tool
from sessions_app.settings import client_tools

if TYPE_CHECKING:
    from sessions_app.agents.llm.tools.toolbox import Toolbox


class OpenTools:
    """What a model is offered, and what cannot be."""

    def __init__(
        self, toolbox: Toolbox | None, notices: Sequence[str], clients_own: Mapping[str, Tool]
    ) -> None:
        self._toolbox = toolbox
        self._clients_own = clients_own
        self.notices: Sequence[str] = [*notices, *(toolbox.notices if toolbox else ())]
        """Sentences for the user about what cannot be used."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by the names under which they are offered."""
        return {**self._clients_own, **(self._toolbox.tools if self._toolbox is not None else {})}

    async def run(self, tool: Tool, arguments: Mapping[str, Any], key: str) -> Outcome:
        """Run one of `tools`, and return its result or why there is none; `key` is the call's own."""
        if tool.server == CLIENT:
            return clients.HANDED_OVER
        return await cast("Toolbox", self._toolbox).run(tool, arguments, key)


@asynccontextmanager
async def opened(conversation: ConversationRef, *, only_reading: bool = False) -> AsyncIterator[OpenTools]:
    """Connect the tool servers of a conversation; in the end nothing of them is left.

    `only_reading`: offer only the tools of which their servers say that they change nothing.
    """
    found = await astore.call(servers.servers_of, conversation)
    declared = [] if only_reading else await astore.call(client_tools.declared, conversation)
    clients_own, left_out = clients.offered(declared)
    notices = [*found.notices, *left_out]
    if not found.servers:
        yield OpenTools(None, notices, clients_own)
        return
    make = await library.toolbox_class()
    toolbox = make(found.servers, only_reading=only_reading, taken=clients_own)
    try:
        await toolbox.connect()
        yield OpenTools(toolbox, notices, clients_own)
    finally:
        await toolbox.close()
