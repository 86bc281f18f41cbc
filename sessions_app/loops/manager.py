"""The standalone manager: agent loops are tasks of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import Any, Self, cast
from weakref import WeakValueDictionary

import structlog
from django.conf import settings
from django.db import connection, connections
from django.utils.module_loading import import_string

from conversations.events import NewEvent
from conversations.exceptions import (
    ConversationError,
    ConversationNotFound,
    LoopUnavailable,
    StoreUnavailable,
)
from conversations.models import Conversation, ConversationRef
from conversations.outages import Outage, first_of
from conversations.readiness import readiness
from conversations.server_log import ids_of
from sessions_app import astore, device_logins, idempotency
from sessions_app.agents.chosen import ConversationAgent
from sessions_app.agents.remote import attachments, names, waiting
from sessions_app.agents.remote.programs import programs
from sessions_app.agents.remote.waiting import AgentAway
from sessions_app.event_loops import PerEventLoop
from sessions_app.housekeeping import take_round
from sessions_app.live import hub, presence
from sessions_app.loops import command_channel, commands, leases, pending_work, recovery, registry
from sessions_app.loops.commands import CommandPending
from sessions_app.loops.conversation_manager import AgentLoopInfo, ConversationManager
from sessions_app.loops.inputs import titles
from sessions_app.loops.leases import LoopHeld
from sessions_app.loops.loop import Loop
from sessions_app.loops.managers.rounds import for_each, logged
from sessions_app.loops.managers.steering_manager import SteeringConversationManager
from sessions_app.models import PRESENCE_S, LoopEnd, Verb
from sessions_app.processes import Process

logger = structlog.stdlib.get_logger(__name__)

# Work whose wake-up was lost waits this long.
SWEEP_S = 5.0
SWEEP_LIMIT = 100
# A renewal may fail and be repeated before the lease expires.
RENEW_S = leases.LEASE_S / 3
# A round may fail before open connections count as closed.
HOUSEKEEPING_S = PRESENCE_S / 3
STOP_WAIT_S = 10.0
A_START = "The start of an agent"
NO_AGENT = "The agent couldn't start. The server's log has the reason."


class StandaloneConversationManager(SteeringConversationManager):
    """Runs all loops of this server as tasks of its event loop."""

    def __init__(self, process: Process | None = None) -> None:
        super().__init__(process)
        self._tasks: set[asyncio.Task[None]] = set()
        # A thread of its own: no lease may expire because all threads of the store wait for a lock.
        self._renewer = ThreadPoolExecutor(1, thread_name_prefix="lease-renewer")
        # By conversation: one caller at a time starts or stops its loop.
        self._starting: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        # By user: starts of one user's loops do not delay another's.
        self._making_room: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        # Conversations for which no agent could be created, so that the log reports it once.
        self._unmakeable: set[int] = set()
        self._swept_through = 0
        self._is_started = False
        self._is_closing = False

    @classmethod
    def get_instance(cls) -> Self:
        return cls()

    async def ensure_started(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        for work in self._works():
            self._own(work())

    def _works(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Return the manager's own tasks beside its loops."""
        return (
            self._sweep,
            self._renew,
            self._clean_up,
            self._look_for_commands,
            self._stop_deactivated,
            self._commands.listen,
        )

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        ending = {*self._tasks, *(self._end(loop) for loop in self._loops.values())}
        if ending:
            await asyncio.wait(ending, timeout=STOP_WAIT_S)
        for loop in self._loops.values():
            logger.error("The agent does not let go", **ids_of(loop.conversation))
        await asyncio.to_thread(self._renewer.shutdown)
        await hub.close()

    # Loops

    def wake(self, conversation: ConversationRef) -> None:
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            loop.wake()
        elif not self._is_closing:
            self._own(self._start_if_needed(conversation, self._stops.now))

    def start_soon(self, conversation: ConversationRef) -> None:
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            loop.wake()
        elif not self._is_closing:
            self._own(self._start_unless_refused(conversation, self._stops.now))

    async def _start_unless_refused(self, conversation: ConversationRef, stops: int) -> None:
        with logged("Setting a title", **ids_of(conversation)):  # whatever the outcome of the start
            await astore.change(titles.set_provisional_title, conversation)
        with logged(A_START, **ids_of(conversation)), suppress(ConversationError):
            await self._start(conversation, stops=stops)  # a refusal has been logged already

    async def _start_if_needed(self, conversation: ConversationRef, stops: int) -> None:
        with logged(A_START, **ids_of(conversation)):
            if await astore.call(pending_work.has_work, conversation):
                await self._start_unless_refused(conversation, stops)

    async def maybe_start_agent_loop(
        self,
        conversation: ConversationRef,
        settings: Mapping[str, Any] | None = None,
        initial_user_msg: NewEvent | None = None,
    ) -> AgentLoopInfo:
        if conversation.pk not in self._loops:
            if initial_user_msg is not None:
                await astore.append(conversation, [initial_user_msg])
            with suppress(LoopHeld):  # another process runs it, and was woken
                await self._start(conversation)
        return (await self._infos(Conversation.objects.filter(pk=conversation.pk)))[0]

    async def _start(
        self, conversation: ConversationRef, *, by_sweep: bool = False, stops: int | None = None
    ) -> None:
        """Start a loop and return once it takes turns; a start `by_sweep` interrupts no other turn.

        `stops` is the moment of `Stops` at which this was requested: a later stop cancels it. Raise
        LoopUnavailable if the loop cannot start, LoopHeld if another process runs it (that loop is woken),
        and ConversationNotFound for a deleted conversation.
        """
        await self.ensure_started()
        stops = self._stops.now if stops is None else stops
        if conversation.pk not in self._loops:
            await self._require_agent(conversation, by_sweep=by_sweep)
        async with self._starting.setdefault(conversation.pk, asyncio.Lock()):
            await self._wait_for_an_ending_loop(conversation)
            if conversation.pk not in self._loops:
                await self._require_unheld(conversation)
                agent = await self._make_agent(conversation)
                async with self._making_room.setdefault(conversation.owner_id, asyncio.Lock()):
                    await self._make_room(conversation, by_sweep=by_sweep)
                    # Nothing is awaited from here on: a later stop finds the loop.
                    self._require_wanted(conversation, stops)
                    self._launch(conversation, agent)
            loop, task = self._loops[conversation.pk], self._running[conversation.pk]
        # A loop that fails before it has started never sets its event.
        started = asyncio.ensure_future(loop.started.wait())
        await asyncio.wait({started, task}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        loop.wake()  # it may have been there already, and have looked before the caller stored its input
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _require_agent(self, conversation: ConversationRef, *, by_sweep: bool) -> None:
        """Check whether the agent is a program that is attached here; wait for one that has just left.

        Otherwise tell the process that it is attached to or, without one, readers, and raise AgentAway.
        """
        name = await astore.call(names.name_of, conversation)
        if name is None:
            return
        grace_s = await self._grace_s(conversation, name)
        within_s = 0.0 if by_sweep else grace_s
        if await programs().come(conversation, name, within_s=within_s) is not None:
            return
        try:
            await astore.call(waiting.require_here, conversation, name, self._process)
        except AgentAway as away:
            if not away.is_elsewhere and not (by_sweep and grace_s):
                await astore.change(recovery.fail, conversation, str(away))
            raise

    async def _grace_s(self, conversation: ConversationRef, name: str) -> float:
        """Return how much longer a program is expected that has left, or was cut off by a restart."""
        left_s, age_s = programs().left_s(conversation, name), programs().age_s
        if age_s < left_s and await astore.call(attachments.was_connected, conversation, name):
            left_s = age_s
        return max(0.0, settings.CONFIGURATION.remote_grace_s - left_s)

    async def agent_attached(self, user_id: int, name: str, conversation: ConversationRef | None) -> None:
        with logged("The look for what a remote agent has to answer"):
            await astore.change(waiting.forget_absence, user_id, name, conversation)
            for each in await astore.call(waiting.waiting_for, user_id, name, conversation):
                self.start_soon(each)

    async def _require_unheld(self, conversation: ConversationRef) -> None:
        """Check before closing other loops. If another process runs the loop, wake it and raise LoopHeld."""
        held = await astore.call(commands.wake_holder, conversation, self._process)
        if held is not None:
            raise leases.held(held)

    def _require_wanted(self, conversation: ConversationRef, stops: int) -> None:
        if self._is_closing:
            raise LoopUnavailable("The server is stopping.")
        if self._stops.was_stopped(conversation.pk, since=stops):
            raise LoopUnavailable("The loop was stopped before it had started.")

    async def _wait_for_an_ending_loop(self, conversation: ConversationRef) -> None:
        loop = self._loops.get(conversation.pk)
        if loop is not None and loop.is_ending:
            await asyncio.wait({self._running[conversation.pk]}, timeout=STOP_WAIT_S)
            if self._loops.get(conversation.pk) is loop:
                raise LoopUnavailable("The agent is still being stopped. Try again in a few seconds.")

    async def _make_agent(self, conversation: ConversationRef) -> ConversationAgent:
        agent = ConversationAgent(conversation)
        try:
            await agent.make()
        except Exception as error:
            if conversation.pk not in self._unmakeable:  # the sweep tries every few seconds
                self._unmakeable.add(conversation.pk)
                logger.error("No agent could be made", **ids_of(conversation), exc_info=error)
            await astore.change(recovery.fail, conversation, NO_AGENT)
            raise LoopUnavailable(NO_AGENT) from error
        self._unmakeable.discard(conversation.pk)
        return agent

    def _launch(self, conversation: ConversationRef, agent: ConversationAgent) -> None:
        loop = Loop(conversation, agent, self._process)
        # The request that starts a loop ends before it. In the request's context, Django's asynchronous cache
        # and ORM would go on to ask the thread of the request, which refuses.
        task = asyncio.get_running_loop().create_task(loop.run(), context=Context())
        self._loops[conversation.pk], self._running[conversation.pk] = loop, task
        task.add_done_callback(lambda task: self._ended(loop, task))

    def _ended(self, loop: Loop, task: asyncio.Task[None]) -> None:
        conversation = loop.conversation
        del self._loops[conversation.pk], self._running[conversation.pk]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("The agent could not start", **ids_of(conversation), error=str(first_of(error)))
        elif loop.ended_by is LoopEnd.EVICTED:
            pass  # it must not evict the loop it made room for: the sweep starts it
        elif loop.is_leaving:
            self.wake(conversation)  # there may be new work since it decided to end

    async def _make_room(self, conversation: ConversationRef, *, by_sweep: bool) -> None:
        """Close the least wanted loops until the user may have one more.

        Raise LoopUnavailable if one of them works, or is about to, and the sweep starts it.
        """
        limit = settings.CONFIGURATION.max_concurrent
        surplus = await astore.call(registry.surplus, conversation, limit)
        # A user's own request may interrupt a turn; a sweep would let two conversations evict each other.
        if by_sweep and any(loop.is_busy for loop in surplus):
            raise LoopUnavailable(
                f"All {limit} of your agents are working: wait until one is done, or stop one."
            )
        for row in surplus:
            logger.info("The agent makes room for another", **ids_of(row.conversation.ref))
            until = time.monotonic() + command_channel.WAIT_S
            with suppress(CommandPending, ConversationNotFound):  # it ends once its agent does
                evict = partial(self._evict_here, row.pk)
                await self._command(row.conversation.ref, Verb.EVICT, evict, until=until)

    # Tasks of the manager

    @property
    def _between_sweeps_s(self) -> float:
        return SWEEP_S

    async def _sweep(self) -> None:
        """Repair what dead loops left, and start loops with work whose wake-up was lost."""
        while True:
            with logged("The search for agents to start"):
                await self._require_ready()
                here = list(self._loops)
                abandoned = await astore.call(pending_work.abandoned, SWEEP_LIMIT, besides=here)
                await for_each(self._in_order(abandoned), self._recover)
                # A recovered turn that goes on is among the work that is looked for below.
                here = list(self._loops)
                for pk in await astore.call(pending_work.with_work_among, here):
                    if pk in self._loops:
                        self._loops[pk].wake()
                after = self._swept_through
                found = await astore.call(pending_work.needing_a_loop, SWEEP_LIMIT, besides=here, after=after)
                # The next round starts after these, so that loops that cannot start do not hide the others.
                self._swept_through = max(each.pk for each in found) if len(found) == SWEEP_LIMIT else 0
                await for_each(self._in_order(found), self._take_over)
            await asyncio.sleep(self._between_sweeps_s)

    def _in_order(self, found: Sequence[ConversationRef]) -> Sequence[ConversationRef]:
        """Return the order in which a sweep processes what it has found."""
        return found

    async def _recover(self, conversation: ConversationRef) -> None:
        if conversation.pk not in self._loops:
            with logged("The repair of an interrupted turn", **ids_of(conversation)):
                await astore.change(recovery.recover, conversation, self._process)

    async def _take_over(self, conversation: ConversationRef) -> None:
        with suppress(ConversationError):  # a later round retries
            await self._start(conversation, by_sweep=True)

    async def _stop_deactivated(self) -> None:
        """Stop the loops of deactivated users, as a request of their own would."""
        while True:
            with logged("The stop of deactivated users' agents"):
                found = await astore.call(pending_work.of_deactivated_users, SWEEP_LIMIT)
                with suppress(CommandPending):  # the holder will obey
                    await self._close_each(found, time.monotonic() + command_channel.WAIT_S)
            await asyncio.sleep(SWEEP_S)

    async def _require_ready(self) -> None:
        """Check the database; if nothing can be stored, end all loops and raise StoreUnavailable."""
        await astore.call(readiness.look, connection)
        if readiness.refusal:
            for loop in list(self._loops.values()):
                self._end(loop)
            raise StoreUnavailable(readiness.refusal)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with logged("The renewal of leases"):
                held = {pk: loop.epoch for pk, loop in self._loops.items() if loop.started.is_set()}
                lost = asyncio.get_running_loop().run_in_executor(
                    self._renewer, _renew_leases, held, self._process
                )
                for pk in await lost:
                    loop = self._loops.get(pk)
                    # A new loop of the conversation may have claimed it during the query.
                    if loop is not None and loop.epoch == held[pk]:
                        logger.warning("The lease was lost", **ids_of(loop.conversation))
                        self._end(loop)

    async def _look_for_commands(self) -> None:
        while True:
            await asyncio.sleep(command_channel.LOOK_S)
            with logged("The look for commands"):
                await self._commands.look()

    async def _clean_up(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            with logged("Housekeeping"):
                await astore.change(presence.touch, presence.here())
                # Half of the pause: a process whose round comes a little early must not leave it out.
                if self.is_housekeeper and await astore.change(take_round, "clean-up", HOUSEKEEPING_S / 2):
                    await astore.change(idempotency.prune)
                    await astore.change(device_logins.prune)
                    await astore.change(commands.forget_settled)
                for pk in await astore.call(registry.forgotten, list(self._loops)):
                    if pk in self._loops:
                        self._loops[pk].leave()

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _failing_tasks.failed(error)


_failing_tasks = Outage(__name__, "A task of the manager failed")


def _renew_leases(held: Mapping[int, int], process: Process) -> set[int]:
    try:
        return leases.renew(held, process)
    finally:
        connections.close_all()  # close it: an idle connection may be broken at the next use


def manager_class() -> type[ConversationManager]:
    return cast(type[ConversationManager], import_string(settings.CONVERSATION_MANAGER))


def _made() -> ConversationManager:
    return cast(ConversationManager, manager_class().get_instance())


_managers = PerEventLoop(_made)


def get_manager() -> ConversationManager:
    return _managers.get()


async def close_manager() -> None:
    """Close the running event loop's manager, if any, and everything that it used."""
    manager = _managers.pop()
    if manager is not None:
        await manager.__aexit__(None, None, None)
    await hub.close()
    await astore.close()


__all__ = [
    "ConversationManager",
    "close_manager",
    "get_manager",
    "manager_class",
]
