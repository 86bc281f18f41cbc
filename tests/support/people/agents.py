"""Agents for servers in processes of their own (CONVSERVER_AGENT)."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from conversations.events import Kind
from sessions_app.agents import demo
from sessions_app.agents.base import Turn
from sessions_app.agents.demo import DemoAgent

COMMANDED = "run this:"
OFTEN = "run this often:"
SLOWLY = "slow: "
CUT_OFF = "cut off"
SLOW_FACTOR = 10
STEPWISE = "steps: "
LATE = "run this later:"


class StandingStillAgent(DemoAgent):
    """The demo agent, but told to hang it does so, for ever: before it says anything, or inside a tool."""

    async def play(self, turn: Turn) -> None:
        text = "\n".join(event["text"] for event in turn.inputs)
        if "hang at once" in text:
            await _for_ever()
        if "hang in a tool" in text:
            await turn.call_tool("run", {"command": "sleep infinity"})
            await _for_ever()
        await super().play(turn)


class CommandedAgent(DemoAgent):
    """The demo agent, but a test says what it asks to run, once or 50,000 times, and what it types slowly.

    It takes as many steps as a message has words, and looks for messages between them. Told to run something
    later, it carries out what was decided only once somebody says `go on`.
    """

    async def play(self, turn: Turn) -> None:
        text = "\n".join(event["text"] for event in turn.inputs)
        if text.startswith(COMMANDED) and turn.decision is None:
            command = text.removeprefix(COMMANDED).strip()
            await turn.ask_approval("run", {"command": command}, thought="I would run this.")
        if text.startswith(LATE) and turn.decision is None:
            await turn.ask_approval("run", {"command": text.removeprefix(LATE).strip()}, thought="If I may.")
        if text.startswith(LATE):
            while not await _says(turn, "go on"):
                pass
        if text.startswith(OFTEN) and turn.decision is None:
            command = f"{text.removeprefix(OFTEN).strip()}\n" * 50_000
            await turn.ask_approval("run", {"command": command}, thought="I would run this often.")
        if text.startswith(SLOWLY):
            await _repeat_slowly(turn, text)
        elif text.startswith(STEPWISE):
            await _take_steps(turn, len(text.split()))
        else:
            await super().play(turn)


class CutOffAgent(CommandedAgent):
    """One that can go on after a crash; at the words `cut off` it stays in a call until it is killed."""

    continues = True

    async def play(self, turn: Turn) -> None:
        if not any(event["text"] == CUT_OFF for event in turn.inputs):
            return await super().play(turn)
        for decision in turn.decisions:
            await turn.start_tool(decision.call)
            await turn.tool_result(decision.call, "removed again")
        if not any(event["kind"] == Kind.TOOL_CALL for event in turn.done):
            await turn.start_tool(await turn.call_tool("run", {"command": "rm -r build"}))
            await _for_ever()
        await turn.say("I go on.")
        return None


class CollectorAgent(DemoAgent):
    """Says whether its process looks for garbage."""

    async def play(self, turn: Turn) -> None:
        await turn.say(f"The collector is {'on' if gc.isenabled() else 'off'}.")


class DirectedAgent:
    """Does what the first word of a message says, until somebody says so in the conversation."""

    async def play(self, turn: Turn) -> None:
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


async def _take_steps(turn: Turn, count: int) -> None:
    for step in range(count):
        await asyncio.sleep(demo.DEFAULT_WORD_S * SLOW_FACTOR)
        for event in await turn.new_inputs():
            await turn.say(f"At step {step} you said: {event['text']}")
    await turn.say("That was the last step.")


async def _for_ever() -> NoReturn:
    while True:
        await asyncio.Event().wait()
