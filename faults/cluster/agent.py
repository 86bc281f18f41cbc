"""The agent of the drill: it runs two tools for what it was told, and then writes an answer."""

from __future__ import annotations

import asyncio
import os

from conversations.events import Kind
from faults.cluster.script import END, OFTEN, ONCE, RUNS_FILE, beginning, is_whole
from sessions_app.agents.base import ToolCall, Turn

TOOL_S, WORD_S = 0.2, 0.08


class DrilledAgent:
    """Goes on after a crash; all that it does can be counted afterwards."""

    continues = True

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        for decision in turn.decisions:
            await _run(turn, decision.call)
        told = [event["text"] for event in turn.inputs]
        begun = [event for event in turn.done if event["kind"] == Kind.TOOL_CALL]
        for name in (ONCE, OFTEN)[len(begun) :]:
            await _run(turn, await turn.call_tool(name, {"about": told}))
        if not any(is_whole(event["text"]) for event in turn.done):
            await _answer(turn, told)


async def _run(turn: Turn, call: ToolCall) -> None:
    key = await turn.start_tool(call)
    line = f"{call.name} {turn.conversation.public_id} {key}\n"
    runs = os.open(os.environ[RUNS_FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(runs, line.encode())  # in one piece, whoever writes at the same time
    finally:
        os.close(runs)
    await asyncio.sleep(TOOL_S)
    await turn.tool_result(call, "It ran.")


async def _answer(turn: Turn, told: list[str]) -> None:
    async with turn.answer() as answer:
        await answer.write(beginning(told))
        for word in ("I", "have", "run", "both", "tools.", END):
            await asyncio.sleep(WORD_S)
            await answer.write(f" {word}")
