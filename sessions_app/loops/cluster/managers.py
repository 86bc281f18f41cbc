"""The managers of a cluster: processes that serve run no loops, workers run nothing else."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any

from conversations.events import NewEvent
from conversations.exceptions import LoopUnavailable
from conversations.log import wakeups as asking
from conversations.models import Conversation, ConversationRef
from conversations.outages import Outage
from conversations.server_log import ids_of
from sessions_app import astore
from sessions_app.agents.remote import names
from sessions_app.loops import commands, pending_work, recovery
from sessions_app.loops.cluster import wakeups
from sessions_app.loops.conversation_manager import AgentLoopInfo
from sessions_app.loops.inputs import titles
from sessions_app.loops.loop import Loop
from sessions_app.loops.manager import SWEEP_S, StandaloneConversationManager
from sessions_app.models import THERE

CLAIM_WAIT_S = 3.0
"""A request to start a loop waits at most this long for a worker to take it."""
CLAIM_LOOK_S = 0.1
ROOM_LOOK_S = 0.2
FIRST_WAIT_S = 2.0
AGAIN_S = 1.0
WORKER_SWEEP_S = 4.0
"""So that another worker takes over within 5 s on the same host."""

_untold = Outage(__name__, "An agent could not be told of a message", "Agents are told of messages again")
_unready = Outage(
    __name__, "The check of the database failed and is tried again", "The database is checked again"
)
_jobless = Outage(__name__, "Wake-up jobs cannot be taken", "Wake-up jobs are taken again")
_unannounced = Outage(__name__, "Other workers could not be told of what is left")
_untrimmed = Outage(__name__, "Old wake-up jobs could not be deleted", "Old wake-up jobs are deleted again")


class ClusteredConversationManager(StandaloneConversationManager):
    """Leaves the loops to workers, and wakes them by jobs; runs those of remote agents attached here."""

    is_housekeeper = False

    def _works(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Return those that a process without loops needs: others sweep, and stop deactivated users."""
        return (self._check, self._renew, self._clean_up, self._look_for_commands, self._commands.listen)

    async def _check(self) -> None:
        """Check the database and its guards, and delete old wake-up jobs, even if there is no worker."""
        while True:
            with _unready.counted():
                await self._require_ready()
                await astore.change(wakeups.trim)
            await asyncio.sleep(SWEEP_S)

    async def maybe_start_agent_loop(
        self,
        conversation: ConversationRef,
        settings: Mapping[str, Any] | None = None,
        initial_user_msg: NewEvent | None = None,
    ) -> AgentLoopInfo:
        """Request a worker to start the loop, and wait for it a little; see the seam."""
        info = await super().maybe_start_agent_loop(conversation, settings, initial_user_msg)
        until = time.monotonic() + CLAIM_WAIT_S
        while info.status not in THERE and time.monotonic() < until:
            await asyncio.sleep(CLAIM_LOOK_S)
            info = (await self._infos(Conversation.objects.filter(pk=conversation.pk)))[0]
        return info

    async def _start(
        self, conversation: ConversationRef, *, by_sweep: bool = False, stops: int | None = None
    ) -> None:
        """Request a worker to start the loop; that of a remote agent starts where its program is attached."""
        stops = self._stops.now if stops is None else stops
        if await self._is_ours(conversation):
            await super()._start(conversation, by_sweep=by_sweep, stops=stops)
            return
        await self.ensure_started()
        await self._require_unheld(conversation)
        self._require_wanted(conversation, stops)
        await astore.change(wakeups.request_start, conversation)

    async def _start_if_needed(self, conversation: ConversationRef, stops: int) -> None:
        """Notify the holder; where there is none, a worker finds what was stored."""
        with _untold.counted(**ids_of(conversation)):  # the message is stored, and found by a look
            if await self._is_ours(conversation):
                await super()._start_if_needed(conversation, stops)
                return
            await astore.change(titles.set_provisional_title, conversation)
            await astore.call(commands.wake_holder, conversation, self._process)

    async def _is_ours(self, conversation: ConversationRef) -> bool:
        """Return whether the loop runs here, if it runs."""
        if conversation.pk in self._loops:
            return True
        # Programs of remote agents connect to servers, so their loops do not run in workers.
        return await astore.call(names.name_of, conversation) is not None

    async def _close_here(self, conversation: ConversationRef, through: int, until: float) -> None:
        """Stop the loop here, or a turn that waits for the user without a loop."""
        if conversation.pk in self._loops:
            await super()._close_here(conversation, through, until)
        elif await astore.call(pending_work.is_suspended, conversation):
            await astore.change(recovery.stop_unheld, conversation, self._process, through)
        else:
            # A job that a worker takes later would start what is being stopped.
            await astore.change(wakeups.forget_starts, conversation)
            await astore.change(recovery.give_up_unheld, conversation, through)


class WorkerConversationManager(StandaloneConversationManager):
    """Runs loops for the whole cluster, at most `concurrency` turns at a time."""

    concurrency = 50
    """The command line sets it."""
    _first = 0
    """How many starts wait that come before new messages."""

    def _works(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        return (*super()._works(), self._take_jobs, self._make_space, self._trim_jobs)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Hand all turns over to other workers at once, where their agents can continue."""
        pks = list(self._loops)
        for loop in self._loops.values():
            loop.mark_handed_over()
        await super().__aexit__(exc_type, exc_value, traceback)
        with _unannounced.counted():  # the others' sweeps find them as well
            left = await astore.call(pending_work.with_work_among, pks)
            await astore.change(asking.asked, sorted(left))

    async def _start(
        self, conversation: ConversationRef, *, by_sweep: bool = False, stops: int | None = None
    ) -> None:
        """Start a loop once there is room; a start `by_sweep` waits only briefly, and is repeated later."""
        stops = self._stops.now if stops is None else stops  # before the wait for room
        if conversation.pk not in self._loops:
            await (self._for_room_first() if by_sweep else self._for_room())
        await super()._start(conversation, by_sweep=by_sweep, stops=stops)

    @property
    def _between_sweeps_s(self) -> float:
        return WORKER_SWEEP_S

    def _in_order(self, found: Sequence[ConversationRef]) -> Sequence[ConversationRef]:
        # A random order: workers that found the same conversations begin with different ones.
        return random.sample(found, len(found))

    async def _for_room(self) -> None:
        # Loops do not announce the end of a turn.
        while (not self._has_room or self._first) and not self._is_closing:  # noqa: ASYNC110
            await asyncio.sleep(ROOM_LOOK_S)

    async def _for_room_first(self) -> None:
        """Wait for room before new messages get it: what a dead worker has left has waited longer.

        Raise LoopUnavailable after FIRST_WAIT_S.
        """
        until = asyncio.get_running_loop().time() + FIRST_WAIT_S
        self._first += 1
        try:
            while not self._has_room and not self._is_closing:
                if asyncio.get_running_loop().time() > until:
                    raise LoopUnavailable("This worker plays as many turns as it may.")
                await asyncio.sleep(ROOM_LOOK_S)
        finally:
            self._first -= 1

    @property
    def _has_room(self) -> bool:
        return sum(map(_is_busy, self._loops.values())) < self.concurrency

    async def _take_jobs(self) -> None:
        while True:
            with _jobless.counted():
                await wakeups.take(self._woken)
            await asyncio.sleep(AGAIN_S)

    async def _woken(self, pk: int, is_start: bool) -> None:
        """Start the loop of a job's conversation; with `is_start` even if it finds nothing to do."""
        if pk not in self._loops:
            await self._for_room()
        conversation = await astore.call(_ref_of, pk)
        if conversation is None or self._is_closing:
            return
        if pk in self._loops:
            self._loops[pk].wake()
        elif is_start:
            await self._start_unless_refused(conversation, self._stops.now)
        else:
            await self._start_if_needed(conversation, self._stops.now)

    async def _trim_jobs(self) -> None:
        while True:
            with _untrimmed.counted():
                await astore.change(wakeups.trim)
            await asyncio.sleep(SWEEP_S)

    async def _make_space(self) -> None:
        """Close idle loops while this worker is full; their next message goes to a worker with room."""
        while True:
            await asyncio.sleep(AGAIN_S)
            if not self._has_room:
                for loop in [each for each in self._loops.values() if not _is_busy(each)]:
                    loop.leave()


def _is_busy(loop: Loop) -> bool:
    return loop.is_working or not loop.started.is_set()


def _ref_of(pk: int) -> ConversationRef | None:
    row = Conversation.objects.active().with_pks([pk]).first()
    return row.ref if row else None
