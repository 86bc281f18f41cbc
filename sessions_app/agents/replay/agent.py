"""The agent that repeats a recorded conversation: its messages, calls and results, with their pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import assert_never

from conversations.events import ConversationRef, Kind
from sessions_app import astore
from sessions_app.agents.base import Agent, ToolCall, Turn, wait_unless_pausing
from sessions_app.agents.chosen import continues, made_for
from sessions_app.agents.registry import class_of
from sessions_app.agents.replay import sources
from sessions_app.agents.replay.recording import (
    RecordedCall,
    RecordedEnd,
    RecordedMessage,
    RecordedResult,
    Step,
)
from sessions_app.agents.replay.sources import Recording

NO_RECORDING = (
    "This conversation has no recording to play. Add one as a file (`.json`: a list of events), and send a "
    "message, or choose another agent."
)
OVER = "The recording has been played to its end. Choose another agent to go on."


class ReplayAgent:
    """Repeats a recorded conversation."""

    title = "Replay"
    description = "Plays a recorded conversation again; after its end, the server's default agent answers."
    takes_conversation = True

    @staticmethod
    def continues_in(conversation: ConversationRef) -> bool:
        """Return whether a turn can continue after a crash: a playing one, or one of such a default agent."""
        if sources.is_playing(conversation):
            return True
        return not issubclass(class_of(), ReplayAgent) and continues(conversation)

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._after: Agent | None = None
        """The agent after the recording."""

    async def play(self, turn: Turn) -> None:
        recording = await astore.call(sources.recording_of, self._conversation)
        if recording is None or recording.problem:
            await turn.say(recording.problem if recording else NO_RECORDING)
            return
        played = await astore.change(sources.begin, self._conversation, turn.turn_id)
        if played.before < len(recording.steps):
            await _Playing(turn, recording, played.before + played.in_turn).play()
        elif (default := await self._default()) is not None:
            await default.play(turn)
        else:
            await turn.say(OVER)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the default agent's answer."""
        default = await self._default()
        return "" if default is None else await default.complete(messages)

    async def _default(self) -> Agent | None:
        """Return the server's default agent; None if it is this one."""
        found = await asyncio.to_thread(class_of)  # the import may take seconds
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
        """Play the remaining steps, first the result of a call that a crash cut off."""
        steps = self._recording.steps
        before = steps[self._played - 1] if self._played else None
        if isinstance(before, RecordedCall) and before.result and (call := _call_without_result(self._turn)):
            await self._give(call, before.result)
        for step in steps[self._played :]:
            await wait_unless_pausing(self._turn, step.after_s * self._recording.pace)
            await self._take(step)

    async def _take(self, step: Step) -> None:
        match step:
            # An agent cannot speak for the user.
            case RecordedMessage(is_users=True):
                await self._turn.say(_quoted(step.text))
            case RecordedMessage():
                async with self._turn.answer() as answer:
                    answer.think(step.reasoning)
                    await answer.write(step.text)
            case RecordedCall():
                await self._call(step)
            case RecordedEnd():
                await self._turn.finish(step.text, thought=step.thought)
            case _:
                assert_never(step)

    async def _call(self, step: RecordedCall) -> None:
        if step.reasoning:
            async with self._turn.answer() as answer:
                if not self._turn.is_pausing:  # otherwise it would be stored without the call
                    answer.think(step.reasoning)
        call = await self._turn.call_tool(step.name, step.arguments, thought=step.thought)
        if step.result is not None:
            await wait_unless_pausing(self._turn, step.result.after_s * self._recording.pace)
            await self._give(call, step.result)

    async def _give(self, call: ToolCall, result: RecordedResult) -> None:
        if result.is_rejection:
            await self._turn.tool_rejected(call, result.text)
        else:
            await self._turn.tool_result(call, result.text, exit_code=result.exit_code)


def _call_without_result(turn: Turn) -> ToolCall | None:
    """Return the last call of an interrupted turn; nothing is run for it."""
    if turn.decisions:
        return turn.decisions[-1].call
    event = turn.done[-1] if turn.done else None
    return None if event is None or event["kind"] != Kind.TOOL_CALL else ToolCall.of(event)


def _quoted(text: str) -> str:
    lines = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
    return f"*The user said:*\n\n{lines}"
