"""The steps of one turn: each is stored once, also if its program repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, assert_never
from uuid import UUID, uuid5

from conversations import dialects
from conversations.dialects.views import MessageView
from conversations.events import Kind
from conversations.exceptions import ConversationError
from conversations.log import reads
from sessions_app import astore
from sessions_app.agents.base import AgentFailure, Answer, ToolCall, Turn
from sessions_app.agents.remote.steps import (
    AnyStep,
    Call,
    Count,
    Done,
    Fail,
    Finish,
    Look,
    Pause,
    Piece,
    Reserve,
    Result,
    Say,
    Start,
    Step,
)
from sessions_app.agents.remote.turn_frames import shown

# Of a streamed answer with its reasoning: each refresh sends readers all of it.
ANSWER_MAX_CHARACTERS = 1024 * 1024
REJECTED = "The user said no."
"""The reason of a rejection without a reason of the user."""

Ack = Mapping[str, Any]
"""The members of a step's acknowledgement, without the frame's id."""


class StepRefused(ConversationError):
    """The step is refused; nothing was stored."""

    code = "bad_frame"


class StepConflict(StepRefused):
    """The turn has stored something else under the step's id."""

    code = "conflict"


class _OpenAnswer(NamedTuple):
    """An answer that the program is streaming."""

    key: str
    context: AbstractAsyncContextManager[Answer]
    answer: Answer


class _Stored(NamedTuple):
    """An event that a step has stored."""

    kind: str
    seq: int


class RemoteTurn:
    """The stored and unfinished steps of one turn, for all programs that play it."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.is_over = False
        self._stored = {event["id"]: _Stored(event["kind"], event["seq"]) for event in turn.done}
        # Answers that a crash has cut off: they stay, and their programs say them again.
        self._cut_off = {
            event["id"]
            for event in turn.done
            if isinstance(view := dialects.view_of(event), MessageView) and view.is_interrupted
        }
        self._results = {event["cause"]: event for event in turn.done if event["cause"] is not None}
        self._calls: dict[str, ToolCall] = {}
        """The calls that were read or stored here, by their event ids."""
        self._running: set[int] = set()
        """The seqs of the calls that the program runs."""
        self._open: _OpenAnswer | None = None
        self._pieces = self._characters = 0
        """Of the open answer."""
        self._counted: set[str] = set()

    @property
    def is_between_steps(self) -> bool:
        """Whether neither an answer nor a call is unfinished."""
        return self._open is None and not self._running

    @property
    def unfinished(self) -> Ack | None:
        """The streamed answer, and the index of its next piece."""
        return None if self._open is None else {"answer": self._open.key, "index": self._pieces}

    async def carry_out(self, step: AnyStep) -> Ack:
        """Carry out a step, and return its acknowledgement. Raise StepRefused, and what the turn raises."""
        match step:
            case Piece():
                return await self._piece(step)
            case Count():
                return self._count(step)
            case Reserve():
                await self.turn.reserve(step.expected)
                return {}
            case Say():
                return await self._say(step)
            case Start():
                return {"key": await self.turn.start_tool(await self._call_of(step.call))}
            case Result():
                return await self._result(step)
            case Look():
                return {"inputs": [shown(event) for event in await self.turn.new_inputs()]}
            case Call() | Pause() | Finish():
                return await self._once(step)
            case Fail() | Done():
                await self.end_answer()
                self.is_over = True
                if isinstance(step, Fail):
                    raise AgentFailure(step.text, code=step.code)
                return {}
            case _:
                assert_never(step)

    async def seq_of(self, step: Step) -> int | None:
        """Return the seq of a step's event, None if it is not stored."""
        event_id = self._event_id(step.key)
        return await astore.call(reads.seq_of_event, self.turn.conversation, event_id)

    async def reject_if_decided(self) -> None:
        """Store the rejections of the calls that the turn waited for."""
        for decision in self.turn.decisions:
            if not decision.accepted and decision.call.seq not in self._results:
                await self.turn.tool_rejected(decision.call, decision.reason or REJECTED)
                await self._note_result(decision.call)

    async def _piece(self, step: Piece) -> Ack:
        if self._event_id(step.answer) in self._stored:
            return {"repeated": True}
        answer = await self._answer(step.answer)
        if step.index > self._pieces:
            raise StepRefused(f"Piece {self._pieces} of the answer {step.answer!r} comes next.")
        if step.index < self._pieces:
            return {"repeated": True}
        if self._characters + len(step.text) > ANSWER_MAX_CHARACTERS:
            raise StepRefused(f"The answer is too long: at most {ANSWER_MAX_CHARACTERS} characters here.")
        self._pieces += 1
        self._characters += len(step.text)
        if step.is_reasoning:
            answer.think(step.text)
            await answer.write("")  # which shows the reasoning
        else:
            await answer.write(step.text)
        return {}

    async def _answer(self, key: str) -> Answer:
        """Return the open answer with this key; another open one is stored as it is."""
        if self._open is None or self._open.key != key:
            await self.end_answer()
            self.turn.identify(self._event_id(key))
            context = self.turn.answer()
            self._open = _OpenAnswer(key, context, await context.__aenter__())
            self._pieces = self._characters = 0
        return self._open.answer

    async def end_answer(self) -> None:
        """Store the open answer as it is, if there is one."""
        if self._open is None:
            return
        key, context, _ = self._open
        self._open = None
        before = self.turn.stored_through
        await context.__aexit__(None, None, None)
        if self.turn.stored_through > before:  # an answer of mere reasoning stores no message
            self._note(self._event_id(key), Kind.MESSAGE)

    async def break_off(self, error: BaseException) -> None:
        """Store the open answer as readers saw it, before this error ends or suspends the turn."""
        if self._open is not None:
            context, self._open = self._open.context, None
            try:
                await context.__aexit__(type(error), error, error.__traceback__)
            except BaseException as raised:
                if raised is not error:  # the caller raises that one itself
                    raise

    async def _say(self, step: Say) -> Ack:
        if self._open is None or self._open.key != step.key:
            return await self._once(step)
        if step.text is not None:
            self._open.answer.replace(step.text)
        await self.end_answer()
        return self._ack(step)

    async def _once(self, step: Say | Call | Pause | Finish) -> Ack:
        """Store a step, unless the turn has its event already."""
        event_id = self._event_id(step.key)
        stored = self._stored.get(event_id)
        if stored is not None:
            # Texts are not compared: a program that plays its turn again may say it otherwise.
            if (stored.kind == Kind.TOOL_CALL) is not isinstance(step, Call | Finish):
                raise StepConflict(f"The turn has stored something else under the id {step.id!r}.")
            self.is_over = isinstance(step, Finish)
            return {**self._ack(step), "repeated": True}
        await self.end_answer()
        self.turn.identify(event_id)
        await self._store(step)
        self._note(event_id, Kind.TOOL_CALL if isinstance(step, Call | Finish) else Kind.MESSAGE)
        return self._ack(step)

    async def _store(self, step: Say | Call | Pause | Finish) -> None:
        match step:
            case Say(text=None):
                raise StepRefused("`text` is missing, and no piece of this answer has come.")
            case Say(text=text):
                await self.turn.say(text or "")
            case Call(asks=True):
                await self.turn.ask_approval(step.name, step.arguments, thought=step.thought)
            case Call():
                call = await self.turn.call_tool(step.name, step.arguments, thought=step.thought)
                self._calls[call.event_id] = call
            case Pause():
                await self.turn.pause(step.text)
            case Finish():
                await self.turn.finish(step.text, thought=step.thought)
                self.is_over = True
            case _:
                assert_never(step)

    def _ack(self, step: Say | Call | Pause | Finish) -> Ack:
        """Return the acknowledgement of a stored step."""
        seq = self._stored[self._event_id(step.key)].seq
        if not isinstance(step, Call):
            return {"seq": seq}
        result = self._results.get(seq)
        if result is None:
            self._running.add(seq)
        accepted = {decision.call.seq: decision.accepted for decision in self.turn.decisions}
        return {
            "seq": seq,
            "accepted": accepted.get(seq),
            "result": None if result is None else shown(result),
        }

    async def _result(self, step: Result) -> Ack:
        call = await self._call_of(step.call)
        stored = self._results.get(call.seq)
        if stored is not None:
            return {"seq": stored["seq"], "repeated": True}
        await self.end_answer()
        await self.turn.tool_result(call, step.content, exit_code=step.exit_code)
        return {"seq": await self._note_result(call)}

    async def _call_of(self, key: str) -> ToolCall:
        event_id = self._event_id(key)
        if event_id not in self._calls:
            stored = self._stored.get(event_id)
            if stored is None or stored.kind != Kind.TOOL_CALL:
                raise StepRefused(f"The turn has no call with the id {key!r}.")
            (event,) = await astore.call(reads.read_some, self.turn.conversation, seqs=[stored.seq])
            self._calls[event_id] = ToolCall.of(event)
        return self._calls[event_id]

    async def _note_result(self, call: ToolCall) -> int:
        seq = self.turn.stored_through
        (event,) = await astore.call(reads.read_some, self.turn.conversation, seqs=[seq])
        self._results[call.seq] = event
        self._running.discard(call.seq)
        return seq

    def _note(self, event_id: str, kind: str) -> None:
        self._stored[event_id] = _Stored(kind, self.turn.stored_through)

    def _count(self, step: Count) -> Ack:
        # Without an id it cannot be a repetition, since its program wants no acknowledgement.
        if step.id is not None:
            if step.key in self._counted:
                return {"repeated": True}
            self._counted.add(step.key)
        self.turn.count(step.usage)
        return {}

    def _event_id(self, key: str) -> str:
        # Derived, so that a program that plays its turn from the start stores nothing twice.
        event_id, time = step_event_id(self.turn.turn_id, key), 1
        while event_id in self._cut_off:
            time += 1
            event_id = step_event_id(self.turn.turn_id, f"{key} {time}")
        return event_id


def step_event_id(turn_id: str, key: str) -> str:
    """Return the id of the event of a step with this id."""
    return str(uuid5(UUID(turn_id), f"frame {key}"))
