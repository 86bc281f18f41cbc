"""The demo agent: needs no key and no network, and does everything that an agent can do, on cue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from django.conf import settings

from conversations.events import Dialect
from sessions_app.agents.base import Decision, Turn

DEFAULT_WORD_S = 0.03
SLOW_FACTOR = 10

HELP = (
    "I am the demo agent: I answer without a model. Say *tool* and I call a pretend tool, *approve* and I "
    "ask before I do something, *slow* and you can watch me type, *finish* and I say that the task is done, "
    "*fail* and I break down."
)
NOTHING_NEW = "There is nothing new to answer."
_CLOCK = {"command": "date"}
_CLOCK_THOUGHT = "I look at the clock."
_RESULTS = {"date": "Fri Nov 20 12:00:00 UTC 2026 (pretended)"}
"""By the command; any other has removed something."""


class DemoAgent:
    """Echoes, streams, calls a pretend tool, asks for approval, finishes, fails: by words of the message."""

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        text = "\n".join(event["text"] for event in turn.inputs)
        cues = set(re.findall(r"[a-z]+", text.lower()))
        if "fail" in cues:
            raise RuntimeError("The demo agent was told to fail.")
        if turn.decision is not None:
            await self._carry_out(turn, turn.decision)
        elif not turn.done and cues & {"approve", "approval"}:
            await turn.ask_approval(
                "run", {"command": "rm -r build"}, thought="This removes files, so I ask."
            )
        elif not turn.done and "tool" in cues:
            await self._look_at_the_clock(turn)
        elif "finish" in cues:
            await turn.finish("The task is done.")
            return
        await self._answer(turn, text, is_slow="slow" in cues)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Repeat the beginning of the last question, between the marks that the first message asks for."""
        if not messages:
            return ""
        if "<update_prompt>" in messages[0]["content"]:
            return f"<update_prompt>{_remembered(messages[0]['content'])}</update_prompt>"
        return messages[-1]["content"].strip()[:50]

    async def _look_at_the_clock(self, turn: Turn) -> None:
        if turn.confirms("LOW"):
            await turn.ask_approval("run", _CLOCK, thought=_CLOCK_THOUGHT)
        call = await turn.call_tool("run", _CLOCK, thought=_CLOCK_THOUGHT)
        await turn.tool_result(call, _RESULTS["date"])

    async def _carry_out(self, turn: Turn, decision: Decision) -> None:
        if decision.accepted:
            command = str(decision.call.arguments.get("command"))
            await turn.tool_result(decision.call, _RESULTS.get(command, "removed (pretended)"))
        else:
            await turn.tool_rejected(decision.call, decision.reason or "The user said no.")

    async def _answer(self, turn: Turn, text: str, *, is_slow: bool) -> None:
        word_s: float = getattr(settings, "DEMO_AGENT_WORD_S", DEFAULT_WORD_S) * (
            SLOW_FACTOR if is_slow else 1
        )
        async with turn.answer() as answer:
            for word in re.findall(r"\s*\S+", self._reply(turn, text)):
                await answer.write(word)
                await asyncio.sleep(word_s)

    def _reply(self, turn: Turn, text: str) -> str:
        if turn.decision is not None:
            return "Done." if turn.decision.accepted else "All right, I leave it."
        if not turn.inputs:
            return NOTHING_NEW
        if not text.strip() or "help" in text.lower():
            return HELP
        # A V1 conversation may begin with a prompt.
        is_first = turn.inputs[0]["seq"] <= (1 if turn.conversation.dialect is Dialect.V1 else 0)
        return f"You said: {text.strip()}" + (f"\n\n{HELP}" if is_first else "")


def _remembered(request: str) -> str:
    """Return what the user said first in the events that a request for an instruction quotes."""
    said = re.search(r"\] user, \w+: (.*)", request)
    return (
        f"Remember what the user asked for: {said[1].strip()[:200]}"
        if said
        else "There is nothing to remember."
    )
