"""The use of tools in a turn: each call is stored before it runs, and its result after."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from conversations.dialects.author import to_strict_json
from conversations.events import Dialect
from conversations.redaction.masking import MASK
from sessions_app.agents import limit_notices
from sessions_app.agents.base import AgentStuck, Decision, ProposedCall, ToolCall, Turn
from sessions_app.agents.llm.tools import hands, named, offers, repetition
from sessions_app.agents.llm.tools.calls import Outcome, WantedCall
from sessions_app.agents.llm.tools.offers import NoServer, Tool
from sessions_app.agents.llm.tools.opening import OpenTools
from sessions_app.agents.llm.tools.repetition import Repetition

HIDDEN = (
    "The arguments held a secret, which the conversation does not keep, so the call was not run. Call the "
    "tool again without it."
)
NOT_ANY_MORE = "The tool isn't available any more, so the call was not run."


class ToolUse:
    """Runs a model's calls within the time of the turn."""

    def __init__(self, turn: Turn, opened: OpenTools, *, detects_repetition: bool) -> None:
        self._turn = turn
        self._opened = opened
        self._repetition = Repetition() if detects_repetition else None

    async def carry_out(self, decision: Decision) -> None:
        """Run or reject a stored call as decided."""
        call = decision.call
        if not decision.accepted:
            await self._turn.tool_rejected(call, decision.reason)
            return
        tools = self._opened.tools
        tool = tools.get(offers.offered_name(call.name, tools))
        if tool is None:
            await self._turn.tool_result(call, NOT_ANY_MORE, exit_code=1)
            return
        # What was approved comes from the log, without the secrets of its owner.
        if MASK in to_strict_json(call.arguments):
            outcome = Outcome(HIDDEN, is_error=True)
        else:
            outcome = await self._run(tool, call, call.arguments)
        await self._store(call, outcome)

    async def run(self, wanted: Sequence[WantedCall]) -> bool:
        """Run calls one after the other; some suspend the turn. Return whether one finishes the task.

        From the first that needs an approval on, all that can be run wait for one decision. What follows
        `finish` is not run, as in the reference.
        """
        for number, call in enumerate(wanted):
            if _finishes(call):
                await self._turn.finish(str(call.arguments["message"]))
                return True
            if self._confirms(call):
                await self._ask(wanted[number:])
            stored = await self._turn.call_tool(call.logged_name, call.arguments, signed=call.signed)
            outcome = await self._outcome(call, stored)
            await self._store(stored, outcome)
            repeated = self._repetition
            if repeated is not None and repeated.is_endless(call.name, call.arguments, outcome.text):
                await self._end_repetition(call.name)
        return False

    def _confirms(self, call: WantedCall) -> bool:
        # A call that cannot run, or that changes only the log, needs no approval.
        if call.tool is None or call.tool.server == NoServer.TURN:
            return False
        asks = self._asks_first(call)
        if asks is not None:
            return asks
        source = self._opened.source_of(call.tool)
        return self._turn.confirms(call.tool.risk_of(call.arguments), name=call.logged_name, source=source)

    def _asks_first(self, call: WantedCall) -> bool | None:
        is_hands = call.tool is not None and call.tool.server == NoServer.WORKSPACE
        return hands.asks_first(call.logged_name, call.arguments) if is_hands else None

    def _proposed(self, call: WantedCall, tool: Tool) -> ProposedCall:
        # A call that waits only beside others says nothing of its tool.
        is_asked = self._confirms(call) and not self._asks_first(call)
        source = self._opened.source_of(tool) if is_asked else None
        return ProposedCall(
            name=call.logged_name, arguments=call.arguments, signed=call.signed, source=source
        )

    async def _store(self, call: ToolCall, outcome: Outcome) -> None:
        code = int(outcome.is_error) if outcome.exit_code is None else outcome.exit_code
        await self._turn.tool_result(
            call, outcome.text, exit_code=code, end=outcome.end, files=outcome.files, edit=outcome.edit
        )

    async def _ask(self, wanted: Sequence[WantedCall]) -> None:
        """Ask for the approval of calls, and answer those that cannot run. This never returns."""
        for call in wanted:
            if call.tool is None:
                stored = await self._turn.call_tool(call.name, call.arguments, signed=call.signed)
                await self._turn.tool_result(stored, call.problem, exit_code=1)
        asked = [
            self._proposed(call, call.tool)
            for call in wanted
            if call.tool and not _finishes(call)  # the agent ends the task once it knows the results
        ]
        await self._turn.ask_approvals(asked)

    async def _outcome(self, call: WantedCall, stored: ToolCall) -> Outcome:
        if call.tool is None:
            return Outcome(call.problem, is_error=True)
        return await self._run(call.tool, stored, call.arguments)

    async def _run(self, tool: Tool, stored: ToolCall, arguments: Mapping[str, Any]) -> Outcome:
        """Run a tool within the remaining time; after that, the agent's next step ends the turn."""
        key = await self._turn.start_tool(stored)
        try:
            async with asyncio.timeout(self._turn.seconds_left):
                report = partial(self._turn.show_progress, stored)
                return await self._opened.run(tool, arguments, key, report=report)
        except TimeoutError:
            return Outcome(limit_notices.CALL_ENDED, is_error=True)

    async def _end_repetition(self, name: str) -> None:
        if self._turn.conversation.dialect is Dialect.V1:  # its clients know a state for this
            told = repetition.notice(name, asks=False)
            await self._turn.notify(told)
            raise AgentStuck(told)
        await self._turn.pause(repetition.notice(name, asks=True))


def _finishes(call: WantedCall) -> bool:
    return call.tool is not None and call.tool.server == NoServer.TURN and call.name == named.FINISH
