"""The setup of a conversation's repository, which its user is asked about before the first request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from conversations.dialects.author import COMMAND_TOOL
from sessions_app import astore
from sessions_app.agents.base import ProposedCall, Turn
from sessions_app.agents.llm.tools import terminal_tool
from sessions_app.repository_skills import setup

if TYPE_CHECKING:
    from sessions_app.agents.llm.tools.offers import Tool


async def ask(turn: Turn, offered: Mapping[str, Tool]) -> None:
    """Suspend the first turn to ask whether to run the scripts of a repository for its setup.

    The turn goes on with the user's decision as after any call that needs an approval: what was approved is
    run in the terminal, and the model reads its result, or that it was rejected.
    """
    terminal = offered.get(terminal_tool.NAME)
    # A client may have declared a tool of this name, which would run the script elsewhere.
    if terminal is None or terminal.own_name != COMMAND_TOOL or turn.decisions:
        return
    wanted = await astore.call(setup.request_of, turn.conversation)
    if wanted is None:
        return
    longest_s = 600  # as long as the reference waits for it
    calls = [
        ProposedCall(name=COMMAND_TOOL, arguments={"command": each, "timeout": longest_s})
        for each in wanted.commands
    ]
    await turn.ask_approvals(calls, thought=wanted.words)
