"""The use of tools in a turn: each call is stored before it runs, and its result after."""

from __future__ import annotations

from collections.abc import Sequence

from conversations.dialects.author import to_strict_json
from conversations.events import Dialect
from conversations.redaction.masking import MASK
from sessions_app.agents.base import AgentFailure, AgentStuck, Decision, Turn
from sessions_app.agents.llm.tools import limits
from sessions_app.agents.llm.tools.calls import Outcome, WantedCall
from sessions_app.agents.llm.tools.limits import Limits, Steps
from sessions_app.agents.llm.tools.opening import OpenTools

HIDDEN = (
    "The arguments held a secret, which the conversation does not keep, so the call was not run. Call the "
    "tool again without it."
)
NOT_ANY_MORE = "The tool isn't available any more, so the call was not run."


class ToolUse:
    """Runs the calls that a model wants, as far as the turn's limits go."""

    def __init__(self, turn: Turn, opened: OpenTools, limits_: Limits) -> None:
        self._turn = turn
        self._opened = opened
        self._limits = limits_
        self._steps = Steps(limits_, turn.done)

    async def carry_out(self, decision: Decision) -> None:
        """Do what the user has decided about the call that waited."""
        call = decision.call
        if not decision.accepted:
            await self._turn.tool_rejected(call, decision.reason)
            return
        tool = self._opened.tools.get(call.name)
        if tool is None:
            await self._turn.tool_result(call, NOT_ANY_MORE, exit_code=1)
            return
        # What was approved comes from the log, without the secrets of its owner.
        if MASK in to_strict_json(call.arguments):
            outcome = Outcome(HIDDEN, is_error=True)
        else:
            outcome = await self._opened.run(tool, call.arguments)
        await self._turn.tool_result(call, outcome.text, exit_code=int(outcome.is_error))

    async def run(self, wanted: Sequence[WantedCall]) -> None:
        """Run calls one after the other; some suspend or end the turn."""
        for call in wanted:
            self._steps.take()
            if call.tool is not None and self._turn.confirms(call.tool.risk):
                await self._turn.ask_approval(call.name, call.arguments)
            stored = await self._turn.call_tool(call.name, call.arguments)
            outcome = await self._outcome(call)
            await self._turn.tool_result(stored, outcome.text, exit_code=int(outcome.is_error))
            if self._steps.repeats(call.name, call.arguments, outcome.text):
                await self._end_repetition(call.name)
        if wanted and self._steps.is_over:
            await self._end_steps()

    async def _outcome(self, call: WantedCall) -> Outcome:
        if call.tool is None:
            return Outcome(call.problem, is_error=True)
        return await self._opened.run(call.tool, call.arguments)

    async def _end_steps(self) -> None:
        most = self._limits.max_steps
        if self._is_v1:
            raise AgentFailure(limits.notice(most, asks=False), code="MaxIterationsReached")
        await self._turn.pause(limits.notice(most))

    async def _end_repetition(self, name: str) -> None:
        if self._is_v1:
            told = limits.repetition(name, asks=False)
            await self._turn.say(told)
            raise AgentStuck(told)
        await self._turn.pause(limits.repetition(name))

    @property
    def _is_v1(self) -> bool:
        """Whether clients know states for these ends; others can be asked."""
        return self._turn.conversation.dialect is Dialect.V1
