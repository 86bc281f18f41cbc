"""The tools of a conversation; without any tool server, no library is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.agents.base import ProgressReport
from sessions_app.agents.llm import library
from sessions_app.agents.llm.tools import clients, hands, named, servers
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.hands import Hands, HandsOffer
from sessions_app.agents.llm.tools.offers import NoServer, Tool
from sessions_app.agents.llm.tools.servers import FoundServers
from sessions_app.settings import client_tools
from sessions_app.settings.client_tools import ClientTool

if TYPE_CHECKING:
    from sessions_app.agents.llm.tools.toolbox import Toolbox


class OpenTools:
    """The offered tools of a model, with their connections."""

    def __init__(
        self, toolbox: Toolbox | None, notices: Sequence[str], others: Mapping[str, Tool], own: Hands
    ) -> None:
        """`own` are the hands of the loop, which this does not close."""
        self._toolbox = toolbox
        self._others = others
        self._hands = own
        self.notices: Sequence[str] = [*notices, *(toolbox.notices if toolbox else ())]
        """Sentences for the user about unusable tools."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by their offered names."""
        return {**self._others, **(self._toolbox.tools if self._toolbox is not None else {})}

    def source_of(self, tool: Tool) -> str:
        """Return what offers a tool, as AllowedTool has it."""
        if tool.server == NoServer.CLIENT:  # each client declares its own
            declared = json.dumps([tool.description, tool.schema])
            return sha256(declared.encode(errors="surrogatepass")).hexdigest()
        if tool.server < 0:
            return NoServer(tool.server).name.lower()
        return cast("Toolbox", self._toolbox).source_of(tool)

    async def run(
        self, tool: Tool, arguments: Mapping[str, Any], key: str, *, report: ProgressReport
    ) -> Outcome:
        """Run a tool, and return its outcome; `key` is the call's idempotency key."""
        if tool.server == NoServer.CLIENT:
            return clients.HANDED_OVER
        if tool.server == NoServer.TURN:
            return named.THOUGHT_KEPT  # `finish` ends the turn instead (`tools.use`)
        if tool.server == NoServer.WORKSPACE:
            return await self._hands.run(tool, arguments, report=report)
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
    hands: HandsOffer


async def needed(conversation: ConversationRef, *, only_reading: bool = False) -> Needed:
    """Return the present settings of a conversation's tools."""
    found = await astore.call(servers.servers_of, conversation)
    offer = await astore.call(hands.offer_of, conversation, only_reads=only_reading)
    if only_reading:
        return Needed(found, [], frozenset(), offer)
    declared = await astore.call(client_tools.declared, conversation)
    return Needed(found, declared, await astore.call(client_tools.named, conversation), offer)


async def open_tools(wanted: Needed, own: Hands, *, only_reading: bool = False) -> OpenTools:
    """Connect the tool servers of a conversation; `only_reading` offers read-only tools alone."""
    clients_own, left_out = clients.offered(wanted.declared)
    # The user's client knows what it has declared, so its tools keep their names.
    others = {**named.offered(wanted.named), **wanted.hands.tools(), **clients_own}
    notices = [*wanted.found.notices, *left_out]
    if not wanted.found.servers:
        return OpenTools(None, notices, others, own)
    make = await library.toolbox_class()
    toolbox = make(wanted.found.servers, only_reading=only_reading, taken=others)
    try:
        await toolbox.connect()
    except BaseException:
        await toolbox.close()
        raise
    return OpenTools(toolbox, notices, others, own)
