"""The agent that a program outside the server plays."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.conf import settings

from conversations.events import ConversationRef
from conversations.exceptions import ConversationError, EventConflict, Fenced, InvalidEvent
from conversations.log import reads
from sessions_app import astore
from sessions_app.agents.base import AgentFailure, Turn, TurnSuspended
from sessions_app.agents.remote import attachments
from sessions_app.agents.remote.programs import Assignment, Program, programs
from sessions_app.agents.remote.remote_turn import RemoteTurn, StepRefused
from sessions_app.agents.remote.steps import AnyStep
from sessions_app.agents.remote.turn_frames import turn_frame
from sessions_app.processes import this_process

GONE = (
    "The agent {name} lost its connection and did not come back within {seconds} seconds. What it had said "
    "is kept. Send the message again once it is connected."
)
MOVED = (
    "The agent {name} has connected to another process of the server. What it had said is kept. Send the "
    "message again."
)
# The codes of errors of one step: its program gets them, and the turn continues.
_REFUSALS = frozenset({StepRefused.code, EventConflict.code, InvalidEvent.code, "call_refused"})


class RemoteAgent:
    """Hands each turn to the program attached under its name, and carries out the steps that it sends."""

    def __init__(self, conversation: ConversationRef, name: str) -> None:
        self.name = name
        self._conversation = conversation

    async def play(self, turn: Turn) -> None:
        """Hand the turn to the program; if it disappears, the next one continues from what is stored."""
        # One for all programs of the turn: an answer that one has begun is continued by the next.
        steps = RemoteTurn(turn)
        try:
            while not steps.is_over:
                await _Playing(await self._program(turn), steps).run()
        except BaseException as error:
            await steps.break_off(error)
            raise

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return nothing: programs only play turns."""
        return ""

    async def _program(self, turn: Turn) -> Program:
        """Return the program, waiting for it for a while. Raise AgentFailure."""
        grace_s: int = settings.CONFIGURATION.remote_grace_s
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while (program := programs().find(self._conversation, self.name)) is None:
                    await turn.checkpoint()
                    await _first_of(programs().arrival(), turn.pausing())
                return program
        found = await astore.call(attachments.connected, self._conversation, self.name)
        has_moved = found is not None and found.process != this_process()
        text = MOVED if has_moved else GONE
        raise AgentFailure(text.format(name=self.name, seconds=grace_s), code="AgentNotConnected")


class _Playing:
    """One turn that one program plays."""

    def __init__(self, program: Program, steps: RemoteTurn) -> None:
        self._program = program
        self._steps = steps
        self._turn = steps.turn
        self._is_told_to_pause = False
        self._suspended_by: AnyStep | None = None

    async def run(self) -> None:
        """Carry out the program's steps until the turn is over or the program is gone."""
        turn_id = self._turn.turn_id
        assignment = self._program.begin(turn_id, self._turn.epoch)
        try:
            await self._steps.reject_if_decided()
            stored, has_earlier = await astore.call(
                reads.read_end_of_turn, self._turn.conversation, turn_id, limit=reads.PAGE_MAX_EVENTS
            )
            frame = turn_frame(self._turn, stored, self._steps.unfinished, has_earlier=has_earlier)
            self._program.send(**frame)
            while not self._steps.is_over:
                step = await self._next(assignment)
                if step is None:
                    return
                await self._carry_out(step)
        except TurnSuspended:
            step = self._suspended_by
            # Without a seq, the step was not stored: the program sends it again.
            seq = None if step is None else await self._steps.seq_of(step)
            self._tell("suspend", id=None if step is None or seq is None else step.id, seq=seq)
            raise
        except Fenced:
            self._tell("fenced")
            raise
        except BaseException:
            if not self._steps.is_over:
                self._tell("stop")
            raise
        finally:
            self._program.end(assignment)

    def _tell(self, kind: str, **members: object) -> None:
        self._program.send(type=kind, turn=self._turn.turn_id, **members)

    async def _next(self, assignment: Assignment) -> AnyStep | None:
        """Return the next step, None once the program is gone; suspend a turn that is to pause."""
        while True:
            if assignment.is_closed:
                return None
            if self._turn.is_pausing:
                await self._pause()
            if (step := assignment.next_now()) is not None:
                return step
            # The wait for a pause would return at once.
            if self._turn.is_pausing:
                await assignment.something()
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._turn.seconds_left):
                        await _first_of(assignment.something(), self._turn.pausing())

    async def _pause(self) -> None:
        """Suspend the turn between two steps; within one, tell the program, which may end it early."""
        if self._steps.is_between_steps:
            await self._turn.checkpoint()
        elif not self._is_told_to_pause:
            self._is_told_to_pause = True
            self._tell("pause")

    async def _carry_out(self, step: AnyStep) -> None:
        try:
            ack = await self._steps.carry_out(step)
        except ConversationError as error:
            if error.code not in _REFUSALS:
                raise
            self._tell("error", code=error.code, detail=str(error), id=step.id)
        except TurnSuspended:
            self._suspended_by = step  # if it is stored, `suspend` is its acknowledgement
            raise
        except AgentFailure:
            if self._steps.is_over:  # the program has sent `fail`
                self._acknowledge(step, {})
            raise
        else:
            self._acknowledge(step, ack)

    def _acknowledge(self, step: AnyStep, ack: Mapping[str, object]) -> None:
        if step.id is not None:
            self._tell("ack", id=step.id, **ack)


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Wait until one of these has ended, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
