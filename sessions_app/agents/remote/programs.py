"""The programs attached to this process: the frames to send, and the turns that they play."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

from cachetools import LRUCache

from conversations.events import ConversationRef
from conversations.exceptions import Fenced
from sessions_app.agents.remote.steps import AnyStep
from sessions_app.event_loops import PerEventLoop

# Steps of one turn; with more, nothing is read from its program, so that they cannot fill the memory.
WAITING_MAX = 64
# Frames; a program that does not read them is not read either.
UNSENT_MAX = 256
# Programs whose departure is remembered.
LEFT_MAX = 1_000

OVER = "This turn is over, waits for the user, or is played by another program."


class ProgramPlace(NamedTuple):
    """The user and name of a program; `conversation` is the key of the only one that it serves."""

    user_id: int
    name: str
    conversation: int | None = None


class Assignment:
    """A turn that a program plays, with the queue of its steps."""

    def __init__(self, turn_id: str, epoch: int) -> None:
        self.turn_id = turn_id
        self.epoch = epoch
        self.is_closed = False
        self._steps: deque[AnyStep] = deque()
        self._has_something = asyncio.Event()
        self._has_room = asyncio.Event()

    async def put(self, step: AnyStep) -> None:
        """Queue a step, once there is room for it. Raise Fenced if the program no longer plays the turn."""
        while len(self._steps) >= WAITING_MAX and not self.is_closed:
            self._has_room.clear()
            await self._has_room.wait()
        if self.is_closed:
            raise Fenced(OVER)
        self._steps.append(step)
        self._has_something.set()

    def next_now(self) -> AnyStep | None:
        """Return the next step, if one is queued."""
        if not self._steps:
            return None
        self._has_room.set()
        return self._steps.popleft()

    async def something(self) -> None:
        """Wait until a step is queued, or the program no longer plays the turn."""
        while not (self._steps or self.is_closed):
            self._has_something.clear()
            await self._has_something.wait()

    def close(self) -> None:
        """Drop the queued steps, and refuse others."""
        self.is_closed = True
        self._steps.clear()
        self._has_something.set()
        self._has_room.set()


class Program:
    """One attached program."""

    def __init__(self, place: ProgramPlace) -> None:
        self.place = place
        self.is_superseded = asyncio.Event()
        """Set when a later program has its place."""
        self.is_gone = asyncio.Event()
        """Set when it no longer plays turns, for any reason."""
        self._assignments: dict[str, Assignment] = {}
        self._unsent: deque[str] = deque()
        self._has_something = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def begin(self, turn_id: str, epoch: int) -> Assignment:
        assignment = self._assignments[turn_id] = Assignment(turn_id, epoch)
        return assignment

    def end(self, assignment: Assignment) -> None:
        """Refuse further steps of the turn."""
        if self._assignments.get(assignment.turn_id) is assignment:
            del self._assignments[assignment.turn_id]
        assignment.close()

    async def take(self, step: AnyStep) -> None:
        """Queue a step. Raise Fenced if the program does not play its turn."""
        assignment = self._assignments.get(step.turn)
        # A step of an earlier loop must not continue the turn of the newest one.
        if self.is_gone.is_set() or assignment is None or assignment.epoch != step.epoch:
            raise Fenced(OVER)
        await assignment.put(step)

    def supersede(self) -> None:
        self.is_superseded.set()
        self.leave()

    def leave(self) -> None:
        """End all its turns: another program may continue them."""
        self.is_gone.set()
        for assignment in list(self._assignments.values()):
            self.end(assignment)

    # Frames to the program

    def send(self, **frame: Any) -> None:
        self._unsent.append(json.dumps(frame, separators=(",", ":")))
        self._has_something.set()
        if len(self._unsent) >= UNSENT_MAX:
            self._has_room.clear()

    async def next_frame(self) -> str:
        """Return the next frame to send, waiting for one."""
        while not self._unsent:
            self._has_something.clear()
            await self._has_something.wait()
        text = self._unsent.popleft()
        if len(self._unsent) < UNSENT_MAX:
            self._has_room.set()
        return text

    async def room(self) -> None:
        """Wait until the program has read most of its frames."""
        await self._has_room.wait()


class Programs:
    """The programs of one event loop, by their places."""

    def __init__(self) -> None:
        self._attached: dict[ProgramPlace, Program] = {}
        self._arrival = asyncio.Event()
        self._began_at = time.monotonic()
        self._left: LRUCache[ProgramPlace, float] = LRUCache(LEFT_MAX)
        """When programs left that may return, by `time.monotonic`."""

    def attach(self, program: Program) -> None:
        """Add a program, in place of an earlier one."""
        earlier = self._attached.get(program.place)
        self._attached[program.place] = program
        if earlier is not None:
            earlier.supersede()
        self._arrival.set()
        self._arrival = asyncio.Event()  # each arrival wakes those that waited until then

    def detach(self, program: Program) -> None:
        # A later program may have its place already.
        if self._attached.get(program.place) is program:
            del self._attached[program.place]
            self._left[program.place] = time.monotonic()
        program.leave()

    def find(self, conversation: ConversationRef, name: str) -> Program | None:
        """Return the program for this conversation's turns, preferably one for it alone."""
        return next(filter(None, map(self._attached.get, _places(conversation, name))), None)

    @property
    def age_s(self) -> float:
        """The age of this process, as far as programs could attach to it."""
        return time.monotonic() - self._began_at

    def left_s(self, conversation: ConversationRef, name: str) -> float:
        """Return how long ago this conversation's program has left; infinite if that is not remembered."""
        left_at = max(self._left.get(place, -inf) for place in _places(conversation, name))
        return time.monotonic() - left_at

    async def come(self, conversation: ConversationRef, name: str, *, within_s: float) -> Program | None:
        """Return the program, waiting for it this long; None if it does not attach."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while (program := self.find(conversation, name)) is None:
                    await self.arrival()
                return program
        return None

    async def arrival(self) -> None:
        """Wait until a program attaches."""
        await self._arrival.wait()


def _places(conversation: ConversationRef, name: str) -> tuple[ProgramPlace, ProgramPlace]:
    """Return the places of programs for a conversation's turns, its own first."""
    owner = conversation.owner_id
    return ProgramPlace(owner, name, conversation.pk), ProgramPlace(owner, name)


_programs = PerEventLoop(Programs)


def programs() -> Programs:
    return _programs.get()
