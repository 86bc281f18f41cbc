"""The tools of a conversation, opened for one turn; without any, no library is imported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.agents.llm import library
from sessions_app.agents.llm.tools import servers
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.offers import Tool

if TYPE_CHECKING:
    from sessions_app.agents.llm.tools.toolbox import Toolbox


class OpenTools:
    """What a model is offered, and what cannot be."""

    def __init__(self, toolbox: Toolbox | None, notices: Sequence[str]) -> None:
        self._toolbox = toolbox
        self.notices: Sequence[str] = [*notices, *(toolbox.notices if toolbox else ())]
        """Sentences for the user about what cannot be used."""

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Return the tools by the names under which they are offered."""
        return self._toolbox.tools if self._toolbox is not None else {}

    async def run(self, tool: Tool, arguments: Mapping[str, Any]) -> Outcome:
        """Run one of `tools`, and return its result or why there is none."""
        return await cast("Toolbox", self._toolbox).run(tool, arguments)


@asynccontextmanager
async def opened(conversation: ConversationRef) -> AsyncIterator[OpenTools]:
    """Connect the tool servers of a conversation; in the end nothing of them is left."""
    found = await astore.call(servers.servers_of, conversation)
    if not found.servers:
        yield OpenTools(None, found.notices)
        return
    toolbox = (await library.toolbox_class())(found.servers)
    try:
        await toolbox.connect()
        yield OpenTools(toolbox, found.notices)
    finally:
        await toolbox.close()
