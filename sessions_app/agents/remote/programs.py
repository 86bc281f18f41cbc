"""The programs that are attached to this process: what each is sent, and the turns that it plays."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

from cachetools import LRUCache

from conversations.exceptions import Fenced
from conversations.models import ConversationRef
from sessions_app.agents.remote.steps import AnyStep
from sessions_app.event_loops import PerEventLoop

WAITING_MAX = 64
"""At most this many steps of one turn wait to be carried out; then no more are read from their program."""
UNSENT_MAX = 256
"""While this many frames wait for a program that does not read, none of its own are read either."""

LEFT_MAX = 1_000
"""At most this many programs that have left are remembered."""

OVER = "This turn is over, waits for the user, or is played by another program."


class Place(NamedTuple):
    """What a program is attached as; `conversation` is the key of the only one that it serves."""

    user_id: int
    name: str
    conversation: int | None = None


class Assignment:
    """A turn that a program plays; its steps wait here, in order."""

    def __init__(self, turn_id: str, epoch: int) -> None:
        self.turn_id = turn_id
        self.epoch = epoch
        self.is_closed = False
        """Whether the program plays the turn no more."""
        self._steps: deque[AnyStep] = deque()
        self._has_something = asyncio.Event()
        self._has_room = asyncio.Event()

    async def put(self, step: AnyStep) -> None:
        """Add a step, once there is room for it. Raise Fenced if the program plays the turn no more."""
        while len(self._steps) >= WAITING_MAX and not self.is_closed:
            self._has_room.clear()
            await self._has_room.wait()
        if self.is_closed:
            raise Fenced(OVER)
        self._steps.append(step)
        self._has_something.set()

    def next_now(self) -> AnyStep | None:
        """Return the next step if one is there."""
        if not self._steps:
            return None
        self._has_room.set()
        return self._steps.popleft()

    async def something(self) -> None:
        """Return once a step is there, or the program plays the turn no more."""
        while not (self._steps or self.is_closed):
            self._has_something.clear()
            await self._has_something.wait()

    def close(self) -> None:
        """Forget the steps that wait, and take no others."""
        self.is_closed = True
        self._steps.clear()
        self._has_something.set()
        self._has_room.set()


class Program:
    """One attached program."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.is_superseded = asyncio.Event()
        """Set once a later program has its place."""
        self.is_gone = asyncio.Event()
        """Set once it plays no turns any more, for whatever reason."""
        self._assignments: dict[str, Assignment] = {}
        self._unsent: deque[str] = deque()
        self._has_something = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    # Turns

    def begin(self, turn_id: str, epoch: int) -> Assignment:
        """Let the program play a turn."""
        assignment = self._assignments[turn_id] = Assignment(turn_id, epoch)
        return assignment

    def end(self, assignment: Assignment) -> None:
        """Take nothing more of the turn."""
        if self._assignments.get(assignment.turn_id) is assignment:
            del self._assignments[assignment.turn_id]
        assignment.close()

    async def take(self, step: AnyStep) -> None:
        """Let a step wait to be carried out. Raise Fenced if the program does not play its turn."""
        assignment = self._assignments.get(step.turn)
        if self.is_gone.is_set() or assignment is None or assignment.epoch != step.epoch:
            raise Fenced(OVER)
        await assignment.put(step)

    def supersede(self) -> None:
        """Give the place to a later program."""
        self.is_superseded.set()
        self.leave()

    def leave(self) -> None:
        """Play no turns any more: another program may go on with them."""
        self.is_gone.set()
        for assignment in list(self._assignments.values()):
            self.end(assignment)

    # Frames to the program

    def send(self, **frame: Any) -> None:
        """Let a frame be sent; does not wait."""
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
        """Return once the program has read most of what it was sent."""
        await self._has_room.wait()


class Programs:
    """The programs of one event loop, by their places."""

    def __init__(self) -> None:
        self._attached: dict[Place, Program] = {}
        self._arrival = asyncio.Event()
        self._began_at = time.monotonic()
        self._left: LRUCache[Place, float] = LRUCache(LEFT_MAX)
        """When programs left that may come back, by the clock of `time.monotonic`."""

    def attach(self, program: Program) -> None:
        """Let a program play turns, in place of an earlier one."""
        earlier = self._attached.get(program.place)
        self._attached[program.place] = program
        if earlier is not None:
            earlier.supersede()
        self._arrival.set()
        self._arrival = asyncio.Event()

    def detach(self, program: Program) -> None:
        """Let a program go."""
        if self._attached.get(program.place) is program:
            del self._attached[program.place]
            self._left[program.place] = time.monotonic()
        program.leave()

    def find(self, conversation: ConversationRef, name: str) -> Program | None:
        """Return the program that plays this conversation's turns: one for it alone first."""
        return next(filter(None, map(self._attached.get, _places(conversation, name))), None)

    @property
    def age_s(self) -> float:
        """For how many seconds programs could attach to this process, at most."""
        return time.monotonic() - self._began_at

    def left_s(self, conversation: ConversationRef, name: str) -> float:
        """Return how many seconds ago this conversation's program has left; infinite if that is long ago."""
        left_at = max(self._left.get(place, -inf) for place in _places(conversation, name))
        return time.monotonic() - left_at

    async def come(self, conversation: ConversationRef, name: str, *, within_s: float) -> Program | None:
        """Return the program, waiting for it this long; None if it does not come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while (program := self.find(conversation, name)) is None:
                    await self.arrival()
                return program
        return None

    async def arrival(self) -> None:
        """Return once a program has come."""
        await self._arrival.wait()


def _places(conversation: ConversationRef, name: str) -> tuple[Place, Place]:
    """Return the places of programs that may play a conversation's turns, its own first."""
    owner = conversation.owner_id
    return Place(owner, name, conversation.pk), Place(owner, name)


_programs = PerEventLoop(Programs)


def programs() -> Programs:
    """Return the programs of the running event loop."""
    return _programs.get()
