"""Agents for servers in processes of their own (CONVSERVER_AGENT)."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from sessions_app.agents import demo
from sessions_app.agents.base import Turn
from sessions_app.agents.demo import DemoAgent

COMMANDED = "run this:"
OFTEN = "run this often:"
SLOWLY = "slow: "
SLOW_FACTOR = 10


class StandingStillAgent(DemoAgent):
    """The demo agent, but told to hang it does so, for ever: before it says anything, or inside a tool."""

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        text = "\n".join(event["text"] for event in turn.inputs)
        if "hang at once" in text:
            await _for_ever()
        if "hang in a tool" in text:
            await turn.call_tool("run", {"command": "sleep infinity"})
            await _for_ever()
        await super().play(turn)


class CommandedAgent(DemoAgent):
    """The demo agent, but a test says what it asks to run, once or 50,000 times, and what it types slowly."""

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        text = "\n".join(event["text"] for event in turn.inputs)
        if text.startswith(COMMANDED) and turn.decision is None:
            command = text.removeprefix(COMMANDED).strip()
            await turn.ask_approval("run", {"command": command}, thought="I would run this.")
        if text.startswith(OFTEN) and turn.decision is None:
            command = f"{text.removeprefix(OFTEN).strip()}\n" * 50_000
            await turn.ask_approval("run", {"command": command}, thought="I would run this often.")
        if text.startswith(SLOWLY):
            await _repeat_slowly(turn, text)
        else:
            await super().play(turn)


class CollectorAgent(DemoAgent):
    """Says whether its process looks for garbage."""

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        await turn.say(f"The collector is {'on' if gc.isenabled() else 'off'}.")


class DirectedAgent:
    """Does what the first word of a message says, until somebody says so in the conversation."""

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        text = "\n".join(event["text"] for event in turn.inputs)
        match text.split()[0]:
            case "hang":
                await turn.call_tool("run", {"command": "sleep infinity"})
                await _for_ever()
            case "cling":  # hears no stop
                with suppress(asyncio.CancelledError):
                    await turn.say("clinging")
                while not await _says_by_now(turn, "let go"):
                    pass
            case "wait":
                if not turn.done:
                    await turn.say("step 1")
                while not await _says(turn, "go on"):
                    pass
                await turn.say("step 2")
            case "approve" if turn.decision is not None:
                await turn.tool_result(turn.decision.call, "removed")
            case "approve":
                await turn.ask_approval("run", {"command": "rm -r build"})
            case _:
                await turn.say(f"You said: {text}")

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Say nothing."""
        return ""


async def _says(turn: Turn, text: str) -> bool:
    await asyncio.sleep(0.05)
    return any(event["text"] == text for event in await turn.history())


async def _says_by_now(turn: Turn, text: str) -> bool:
    with suppress(asyncio.CancelledError):
        return await _says(turn, text)
    return False


async def _repeat_slowly(turn: Turn, text: str) -> None:
    async with turn.answer() as answer:
        for word in re.findall(r"\s*\S+", f"You said: {text}"):
            await answer.write(word)
            await asyncio.sleep(demo.DEFAULT_WORD_S * SLOW_FACTOR)


async def _for_ever() -> NoReturn:
    while True:
        await asyncio.Event().wait()
