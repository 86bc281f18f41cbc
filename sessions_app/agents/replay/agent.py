"""The agent that plays a recorded conversation again: its messages, calls and results, with their pauses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import assert_never

from conversations import dialects
from conversations.events import Dialect, Kind
from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.agents.base import Agent, ToolCall, Turn
from sessions_app.agents.chosen import continues, made_for
from sessions_app.agents.registry import class_of
from sessions_app.agents.replay import sources
from sessions_app.agents.replay.recording import Called, Finished, Result, Said, Step
from sessions_app.agents.replay.sources import Recording

LOOK_S = 0.2
"""A pause takes effect within this time."""
NO_RECORDING = (
    "This conversation has no recording to play. Add one as a file (`.json`: a list of events), and send a "
    "message, or choose another agent."
)
OVER = "The recording has been played to its end. Choose another agent to go on."


class ReplayAgent:
    """Plays a recorded conversation."""

    title = "Replay"
    description = "Plays a recorded conversation again; after its end, the server's default agent answers."
    takes_conversation = True

    @staticmethod
    def continues_in(conversation: ConversationRef) -> bool:
        """Say whether a turn can go on after a crash: one that plays can, one of the default agent may."""
        if sources.is_playing(conversation):
            return True
        return not issubclass(class_of(), ReplayAgent) and continues(conversation)

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._after: Agent | None = None
        """Who answers after the recording."""

    async def play(self, turn: Turn) -> None:
        """Play what is left of the recording."""
        recording = await astore.call(sources.recording_of, self._conversation)
        if recording is None or recording.problem:
            await turn.say(recording.problem if recording else NO_RECORDING)
            return
        played = await astore.change(sources.begin, self._conversation, turn.turn_id)
        if played.before >= len(recording.steps):
            await self._go_on(turn)
        else:
            await _Playing(turn, recording, played.before + played.in_turn).play()

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Let the default agent answer."""
        default = await self._default()
        return "" if default is None else await default.complete(messages)

    async def _go_on(self, turn: Turn) -> None:
        default = await self._default()
        if default is None:
            await turn.say(OVER)
        else:
            await default.play(turn)

    async def _default(self) -> Agent | None:
        """Return the server's default agent; None if that is this one."""
        found = await asyncio.to_thread(class_of)
        if issubclass(found, ReplayAgent):
            return None
        if self._after is None:
            self._after = made_for(found, self._conversation)
        return self._after


class _Playing:
    """One turn."""

    def __init__(self, turn: Turn, recording: Recording, played: int) -> None:
        self._turn = turn
        self._recording = recording
        self._played = played

    async def play(self) -> None:
        """Play the steps that are left, first the result of a call that was stored before a crash."""
        steps = self._recording.steps
        before = steps[self._played - 1] if self._played else None
        if isinstance(before, Called) and before.result and (call := _call_without_result(self._turn)):
            await self._give(call, before.result)
        for step in steps[self._played :]:
            await self._wait(step.after_s)
            await self._take(step)

    async def _take(self, step: Step) -> None:
        match step:
            case Said(is_users=True):
                await self._turn.say(_quoted(step.text))
            case Said():
                async with self._turn.answer() as answer:
                    answer.think(step.reasoning)
                    await answer.write(step.text)
            case Called():
                await self._call(step)
            case Finished():
                await self._turn.finish(step.text, thought=step.thought)
            case _:
                assert_never(step)

    async def _call(self, step: Called) -> None:
        if step.reasoning:
            async with self._turn.answer() as answer:
                if not self._turn.is_pausing:  # else it would be stored without the call
                    answer.think(step.reasoning)
        call = await self._turn.call_tool(step.name, step.arguments, thought=step.thought)
        if step.result is not None:
            await self._wait(step.result.after_s)
            await self._give(call, step.result)

    async def _give(self, call: ToolCall, result: Result) -> None:
        if result.is_rejection:
            await self._turn.tool_rejected(call, result.text)
        else:
            await self._turn.tool_result(call, result.text, exit_code=result.exit_code)

    async def _wait(self, original_s: float) -> None:
        """Wait as long as the recording did, times its pace, unless the turn is to pause."""
        left_s = original_s * self._recording.pace
        while left_s > 0 and not self._turn.is_pausing:
            await asyncio.sleep(min(left_s, LOOK_S))
            left_s -= LOOK_S


def _call_without_result(turn: Turn) -> ToolCall | None:
    """Return the call that the turn was cut off after; nothing is run for it."""
    if turn.decisions:
        return turn.decisions[-1].call
    event = turn.done[-1] if turn.done else None
    if event is None or event["kind"] != Kind.TOOL_CALL:
        return None
    name, arguments = dialects.called_tool(json.loads(event["payload"]), Dialect(event["dialect"]))
    return ToolCall(
        name=name,
        arguments=arguments,
        tool_call_id=event["tool_call_id"] or "",
        event_id=event["id"],
        seq=event["seq"],
    )


def _quoted(text: str) -> str:
    lines = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
    return f"*The user said:*\n\n{lines}"
