"""The standalone manager: agent loops are tasks of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from types import TracebackType
from typing import Any, Self, TypeVar, assert_never, cast
from weakref import WeakValueDictionary

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, connections
from django.utils.module_loading import import_string

from conversations import families, live
from conversations.events import Dialect, NewEvent
from conversations.exceptions import (
    ConversationError,
    ConversationNotFound,
    LoopUnavailable,
    StoreUnavailable,
)
from conversations.models import Conversation, ConversationRef, normal_id
from conversations.outages import Outage, first_of
from conversations.readiness import readiness
from conversations.server_log import ids_of
from sessions_app import astore, idempotency
from sessions_app.agents.chosen import ConversationAgent
from sessions_app.agents.remote import attachments, names, waiting
from sessions_app.agents.remote.programs import programs
from sessions_app.agents.remote.waiting import AgentAway
from sessions_app.event_loops import PerEventLoop
from sessions_app.housekeeping import take_round
from sessions_app.live import hub, presence
from sessions_app.loops import (
    command_channel,
    commands,
    decisions,
    leases,
    pauses,
    pending_work,
    recovery,
    registry,
    runs,
    titles,
)
from sessions_app.loops.command_channel import CommandChannel
from sessions_app.loops.commands import Command, CommandPending
from sessions_app.loops.conversation_manager import AgentLoopInfo, ConversationManager
from sessions_app.loops.leases import LoopHeld
from sessions_app.loops.loop import Loop
from sessions_app.loops.runs import Asked, Said
from sessions_app.loops.stops import Stops
from sessions_app.models import CommandOutcome, ExecutionStatus, LoopEnd, LoopStatus, UnknownAnswer, Verb
from sessions_app.processes import Process, this_process

logger = structlog.stdlib.get_logger(__name__)

_unresumed = Outage(__name__, "A pause could not be taken back", "Pauses are taken back again")

T = TypeVar("T")

SWEEP_S = 5.0
SWEEP_LIMIT = 100
RENEW_S = 5.0
HOUSEKEEPING_S = 20.0
STOP_WAIT_S = 10.0
AT_ONCE = 8
"""At most this many of several conversations are stopped, repaired or started at the same time."""
A_START = "The start of an agent"
NO_AGENT = "The agent couldn't start. The server's log has the reason."


class StandaloneConversationManager(ConversationManager):
    """Runs all loops of this server as tasks of its event loop."""

    def __init__(self, process: Process | None = None) -> None:
        """`process` holds the leases; by default it is the running one."""
        self._process = process or this_process()
        self._loops: dict[int, Loop] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # A thread of its own: no lease may expire because all threads of the store wait for a lock.
        self._renewer = ThreadPoolExecutor(1, thread_name_prefix="lease-renewer")
        # By conversation: one caller at a time starts or stops its loop.
        self._starting: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        # By user: starts of one user's loops do not delay another's.
        self._making_room: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        # Stops of the loops here: they cancel starts that were requested before.
        self._stops = Stops()
        # Conversations for which no agent could be created, so that the log reports it once.
        self._unmakeable: set[int] = set()
        self._commands = CommandChannel(
            self._process, held=self._epochs, obey=self._take_command, wake=self._wake_loop_here
        )
        # By the id of a connection: its conversation and its user.
        self._joined: dict[str, tuple[ConversationRef, int]] = {}
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
            self._keep_house,
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
            self._own(self._start_if_asked(conversation, self._stops.now))

    def start_soon(self, conversation: ConversationRef) -> None:
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            loop.wake()
        elif not self._is_closing:
            self._own(self._start_unless_refused(conversation, self._stops.now))

    async def _start_unless_refused(self, conversation: ConversationRef, stops: int) -> None:
        with _logged("Setting a title", **ids_of(conversation)):  # whatever the outcome of the start
            await astore.change(titles.set_provisional_title, conversation)
        with _logged(A_START, **ids_of(conversation)), suppress(ConversationError):
            await self._start(conversation, stops=stops)  # a refusal has been logged already

    async def _start_if_asked(self, conversation: ConversationRef, stops: int) -> None:
        with _logged(A_START, **ids_of(conversation)):
            if await astore.call(pending_work.is_asked, conversation):
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
        self, conversation: ConversationRef, *, patiently: bool = False, stops: int | None = None
    ) -> None:
        """Start a loop and return once it takes turns; `patiently` without interrupting another's turn.

        `stops` is the moment of `Stops` at which this was requested: a later stop cancels it. Raise
        LoopUnavailable if the loop cannot start, LoopHeld if another process runs it (that loop is woken),
        and ConversationNotFound for a deleted conversation.
        """
        await self.ensure_started()
        stops = self._stops.now if stops is None else stops
        if conversation.pk not in self._loops:
            await self._require_agent(conversation, patiently=patiently)
        async with self._starting.setdefault(conversation.pk, asyncio.Lock()):
            await self._wait_for_an_ending_loop(conversation)
            if conversation.pk not in self._loops:
                await self._require_unheld(conversation)
                agent = await self._make_agent(conversation)
                async with self._making_room.setdefault(conversation.owner_id, asyncio.Lock()):
                    await self._make_room(conversation, patiently=patiently)
                    self._require_wanted(conversation, stops)
                    self._launch(conversation, agent)
            loop, task = self._loops[conversation.pk], self._running[conversation.pk]
        started = asyncio.ensure_future(loop.started.wait())
        await asyncio.wait({started, task}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        loop.wake()
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _require_agent(self, conversation: ConversationRef, *, patiently: bool) -> None:
        """Check whether the agent is a program that is attached here; wait for one that has just left.

        Otherwise tell the process that it is attached to or, without one, readers, and raise AgentAway.
        """
        name = await astore.call(names.name_of, conversation)
        if name is None:
            return
        grace_s = await self._grace_s(conversation, name)
        within_s = 0.0 if patiently else grace_s
        if await programs().come(conversation, name, within_s=within_s) is not None:
            return
        try:
            await astore.call(waiting.require_here, conversation, name, self._process)
        except AgentAway as away:
            if not away.is_elsewhere and not (patiently and grace_s):
                await astore.change(recovery.fail, conversation, str(away))
            raise

    async def _grace_s(self, conversation: ConversationRef, name: str) -> float:
        """Return how much longer a program is expected that has left, or was cut off by a restart."""
        left_s, age_s = programs().left_s(conversation, name), programs().age_s
        if age_s < left_s and await astore.call(attachments.was_connected, conversation, name):
            left_s = age_s
        return max(0.0, settings.CONFIGURATION.remote_grace_s - left_s)

    async def agent_attached(self, user_id: int, name: str, conversation: ConversationRef | None) -> None:
        with _logged("The look for what a remote agent has to answer"):
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
            await self._note_no_agent(conversation, error)
            raise LoopUnavailable(NO_AGENT) from error
        self._unmakeable.discard(conversation.pk)
        return agent

    def _launch(self, conversation: ConversationRef, agent: ConversationAgent) -> None:
        loop = Loop(conversation, agent, self._process)
        task = asyncio.get_running_loop().create_task(loop.run())
        self._loops[conversation.pk], self._running[conversation.pk] = loop, task
        task.add_done_callback(lambda task: self._ended(loop, task))

    async def _note_no_agent(self, conversation: ConversationRef, error: Exception) -> None:
        """Record that the loop could not start; the sweep keeps trying, and the log reports it once."""
        if conversation.pk not in self._unmakeable:
            self._unmakeable.add(conversation.pk)
            logger.error("No agent could be made", **ids_of(conversation), exc_info=error)
        await astore.change(recovery.fail, conversation, NO_AGENT)

    def _ended(self, loop: Loop, task: asyncio.Task[None]) -> None:
        conversation = loop.conversation
        del self._loops[conversation.pk], self._running[conversation.pk]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("The agent could not start", **ids_of(conversation), error=str(first_of(error)))
        elif loop.ended_by is LoopEnd.EVICTED:
            pass  # it must not evict the loop it made room for: the sweep starts it, patiently
        elif loop.is_leaving:
            self.wake(conversation)  # there may be new work since it decided to end

    async def _make_room(self, conversation: ConversationRef, *, patiently: bool) -> None:
        """Close the least wanted loops until the user may have one more.

        Raise LoopUnavailable if one of them works, or is about to, and the caller is patient.
        """
        limit = settings.CONFIGURATION.max_concurrent
        surplus = await astore.call(registry.surplus, conversation, limit)
        if patiently and any(loop.is_busy for loop in surplus):
            raise LoopUnavailable(
                f"All {limit} of your agents are working: wait until one is done, or stop one."
            )
        for row in surplus:
            logger.info("The agent makes room for another", **ids_of(row.conversation.ref))
            until = time.monotonic() + command_channel.WAIT_S
            with suppress(CommandPending, ConversationNotFound):  # it ends once its agent does
                evict = partial(self._evict_here, row.pk)
                await self._command(row.conversation.ref, Verb.EVICT, evict, until=until)

    async def _evict_here(self, pk: int) -> None:
        loop = self._loops.get(pk)
        if loop is not None:
            self._evict(loop)
            await asyncio.wait({self._running[pk]}, timeout=command_channel.WAIT_S)

    def _evict(self, loop: Loop) -> None:
        loop.mark_evicted()
        self._end(loop)

    # Commands: for the loop that runs here, or for the process that runs it

    async def _command(
        self,
        conversation: ConversationRef,
        verb: Verb,
        here: Callable[[], Awaitable[T]],
        *,
        until: float | None = None,
    ) -> T | CommandOutcome:
        """Act here if the loop is here or nowhere; otherwise send the command to its holder.

        Return what `here` returns, or the outcome of the command. Raise CommandPending after `until`, a
        moment of `time.monotonic`; LoopUnavailable if the holder refuses.
        """
        until = time.monotonic() + command_channel.WAIT_S if until is None else until
        was_held = False
        while True:
            settled = None
            if conversation.pk not in self._loops:
                settled = await self._commands.send(conversation, verb, until=until)
            if settled is None:
                try:
                    return await here()
                except LoopHeld:  # another process has claimed it meanwhile
                    if was_held:
                        raise
                    was_held = True
            elif settled.outcome is CommandOutcome.REFUSED:
                raise LoopUnavailable(settled.detail)
            elif settled.outcome is not CommandOutcome.ENDED:
                return settled.outcome

    def _epochs(self) -> dict[int, int]:
        return {pk: loop.epoch for pk, loop in self._loops.items()}

    def _take_command(self, command: Command) -> None:
        self._own(self._obey(command))

    async def _obey(self, command: Command) -> None:
        """Carry out another process's command; releasing the loop settles a command that ends it."""
        loop = self._loops.get(command.conversation_pk)
        if loop is None or loop.epoch != command.epoch:
            return
        try:
            outcome = await self._obey_in(loop, command)
        except ConversationError as error:
            await self._commands.settle(command, CommandOutcome.REFUSED, str(error))
        except Exception as error:
            _failing_commands.failed(error, verb=str(command.verb), **ids_of(loop.conversation))
            self._commands.let_go(command)
        else:
            if outcome is not CommandOutcome.PENDING:
                await self._commands.settle(command, outcome)

    async def _obey_in(self, loop: Loop, command: Command) -> CommandOutcome:
        match command.verb:
            case Verb.STOP:
                self._stops.note(command.conversation_pk)
                self._stop(loop, command.through)
                return CommandOutcome.PENDING
            case Verb.EVICT:
                self._evict(loop)
                return CommandOutcome.PENDING
            case Verb.PAUSE:
                await loop.pause()
            case Verb.INTERRUPT:
                await loop.interrupt(through=command.through)
            case Verb.RESUME:
                await self._run_here(loop.conversation)
            case Verb.RUN:
                return _OUTCOMES[await self._ask_run_here(loop.conversation)]
            case _:
                assert_never(command.verb)
        return CommandOutcome.DONE

    def _wake_loop_here(self, pk: int) -> None:
        loop = self._loops.get(pk)
        if loop is not None:
            loop.wake()

    async def close_session(self, conversation_id: str) -> None:
        loop = self.get_agent_session(conversation_id)
        conversation = loop.conversation if loop else await self.attach_to_conversation(conversation_id)
        if conversation is not None:
            until = time.monotonic() + command_channel.WAIT_S
            await _all_of(self._close(conversation, until), self._close_below(conversation, until))

    async def close_sub_conversations(self, conversation: ConversationRef) -> None:
        await self._close_below(conversation, time.monotonic() + command_channel.WAIT_S)

    async def _close_below(self, conversation: ConversationRef, until: float) -> None:
        family = await astore.call(families.family_of, conversation)
        await self._close_each(family[1:], until)

    async def _close_each(self, conversations: Sequence[ConversationRef], until: float) -> None:
        async def close(each: ConversationRef) -> None:
            with suppress(ConversationNotFound):
                await self._close(each, until)

        await _for_each(conversations, close)

    async def _close(self, conversation: ConversationRef, until: float) -> None:
        """Stop one loop. Raise CommandPending if it has not ended by `until`; it ends later."""
        self._stops.note(conversation.pk)
        through = await astore.call(pending_work.asked_through, conversation)
        here = partial(self._close_here, conversation, through, until)
        await self._command(conversation, Verb.STOP, here, until=until)

    async def _close_here(self, conversation: ConversationRef, through: int, until: float) -> None:
        """Cancel the loop's task and wait for it.

        If no process runs the loop, end a turn that waits for the user as well.
        """
        if conversation.pk not in self._loops:
            if not await astore.call(pending_work.is_suspended, conversation):
                await astore.change(recovery.give_up_unheld, conversation, through)
                return
            try:
                await self._start(conversation)
            except AgentAway:
                await astore.change(recovery.stop_unheld, conversation, self._process, through)
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            await asyncio.wait({self._stop(loop, through)}, timeout=max(0.0, until - time.monotonic()))
            if self._loops.get(conversation.pk) is loop:
                raise CommandPending(Verb.STOP)

    def _stop(self, loop: Loop, through: int) -> asyncio.Task[None]:
        """End the loop at its user's request, and return its task."""
        loop.mark_stopped(through=through)
        return self._end(loop)

    def _end(self, loop: Loop) -> asyncio.Task[None]:
        """Cancel the loop's task, once, and return it."""
        task = self._running[loop.conversation.pk]
        if not loop.is_ending:
            loop.mark_ending()
            task.cancel()
        return task

    def get_agent_session(self, conversation_id: str) -> Loop | None:
        public_id = normal_id(conversation_id)
        return next((loop for loop in self._loops.values() if loop.conversation.public_id == public_id), None)

    async def run(self, conversation: ConversationRef) -> None:
        await self._command(conversation, Verb.RESUME, partial(self._run_here, conversation))

    async def _run_here(self, conversation: ConversationRef) -> None:
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            await loop.resume()
        else:
            await astore.change(pauses.resume, conversation)
        await self._start(conversation)

    async def ask_run(self, conversation: ConversationRef) -> bool:
        asked = await self._command(conversation, Verb.RUN, partial(self._ask_run_here, conversation))
        return asked not in (Asked.RUNS, CommandOutcome.RUNS)

    async def _ask_run_here(self, conversation: ConversationRef) -> Asked:
        loop = self._loops.get(conversation.pk)
        asked = await (loop.ask_run() if loop is not None else astore.change(runs.ask, conversation))
        if asked is Asked.BEGUN:
            self.start_soon(conversation)  # it is stored, whatever the outcome of the start
        elif asked is Asked.NOTHING:
            live.announce_run(conversation)  # clients that wait for the end of the run learn that it is over
        return asked

    async def take_input(self, conversation: ConversationRef, message: NewEvent, *, run: bool) -> Said:
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            return await loop.take(message, run=run)
        said = await astore.call_settled(runs.take, conversation, message, run=run)
        if run:  # take back a pause that the turn's holder has not obeyed yet
            with _unresumed.counted(**ids_of(conversation)):  # the message is stored in any case
                await astore.change(self._resume_turn, conversation)
        if said.asks or run:  # a repeat has no effect, but the first attempt may have been cut off
            self.wake(conversation)
        return said

    def _resume_turn(self, conversation: ConversationRef) -> None:
        until = time.monotonic() + command_channel.WAIT_S
        commands.give(conversation, Verb.RESUME, self._process, only_in_turn=True, until=until)

    async def pause(self, conversation: ConversationRef) -> None:
        await self._command(conversation, Verb.PAUSE, partial(self._pause_here, conversation))

    async def _pause_here(self, conversation: ConversationRef) -> None:
        if not await self._pause(conversation):
            await astore.change(recovery.recover, conversation, self._process)
            await self._pause(conversation)

    async def _pause(self, conversation: ConversationRef) -> bool:
        loop = self._loops.get(conversation.pk)
        if loop is None:
            try:
                return await astore.change(pauses.pause, conversation)
            except LoopHeld:
                loop = self._loops.get(conversation.pk)
                if loop is None:  # otherwise it was started here meanwhile
                    raise
        await loop.pause()
        return True

    async def interrupt(self, conversation: ConversationRef) -> None:
        """Notify the loop; without one, end a turn that waits."""
        await self._command(conversation, Verb.INTERRUPT, partial(self._interrupt_here, conversation))

    async def _interrupt_here(self, conversation: ConversationRef) -> None:
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            await loop.interrupt()
        elif conversation.dialect is Dialect.V1:
            await astore.change(runs.interrupt_unheld, conversation)
        else:
            await self.close_session(conversation.public_id)

    async def confirm(
        self,
        conversation: ConversationRef,
        *,
        accept: bool,
        reason: str = "",
        call_seq: int | None = None,
        event_id: str | None = None,
        outcome: UnknownAnswer | None = None,
    ) -> None:
        await astore.change(
            decisions.decide,
            conversation,
            accept,
            reason,
            call_seq=call_seq,
            event_id=event_id,
            outcome=outcome,
        )
        self.start_soon(conversation)  # it is stored, whatever the outcome of the start

    # Tasks of the manager

    @property
    def _between_sweeps_s(self) -> float:
        return SWEEP_S

    async def _sweep(self) -> None:
        """Repair what dead loops left, and start loops with work whose wake-up was lost."""
        while True:
            with _logged("The search for agents to start"):
                await self._require_ready()
                here = list(self._loops)
                abandoned = await astore.call(pending_work.abandoned, SWEEP_LIMIT, besides=here)
                await _for_each(self._in_order(abandoned), self._recover)
                here = list(self._loops)
                for pk in await astore.call(pending_work.asked_among, here):
                    if pk in self._loops:
                        self._loops[pk].wake()
                after = self._swept_through
                found = await astore.call(pending_work.needing_a_loop, SWEEP_LIMIT, besides=here, after=after)
                # The next round starts after these, so that loops that cannot start do not hide the others.
                self._swept_through = max(each.pk for each in found) if len(found) == SWEEP_LIMIT else 0
                await _for_each(self._in_order(found), self._take_over)
            await asyncio.sleep(self._between_sweeps_s)

    def _in_order(self, found: Sequence[ConversationRef]) -> Sequence[ConversationRef]:
        """Return the order in which a sweep processes what it has found."""
        return found

    async def _recover(self, conversation: ConversationRef) -> None:
        if conversation.pk not in self._loops:
            with _logged("The repair of an interrupted turn", **ids_of(conversation)):
                await astore.change(recovery.recover, conversation, self._process)

    async def _take_over(self, conversation: ConversationRef) -> None:
        with suppress(ConversationError):  # a later round retries
            await self._start(conversation, patiently=True)

    async def _stop_deactivated(self) -> None:
        """Stop the loops of deactivated users, as a request of their own would."""
        while True:
            with _logged("The stop of deactivated users' agents"):
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
            with _logged("The renewal of leases"):
                held = {pk: loop.epoch for pk, loop in self._loops.items() if loop.started.is_set()}
                lost = asyncio.get_running_loop().run_in_executor(
                    self._renewer, _renew_leases, held, self._process
                )
                for pk in await lost:
                    loop = self._loops.get(pk)
                    if loop is not None and loop.epoch == held[pk]:
                        logger.warning("The lease was lost", **ids_of(loop.conversation))
                        self._end(loop)

    async def _look_for_commands(self) -> None:
        while True:
            await asyncio.sleep(command_channel.LOOK_S)
            with _logged("The look for commands"):
                await self._commands.look()

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            with _logged("Housekeeping"):
                await astore.change(presence.touch, presence.here())
                if self.keeps_house and await astore.change(take_round, "clean-up", HOUSEKEEPING_S / 2):
                    await astore.change(idempotency.prune)
                    await astore.change(commands.forget_settled)
                for pk in await astore.call(registry.forgotten, list(self._loops)):
                    if pk in self._loops:
                        self._loops[pk].leave()

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _failing_tasks.failed(error)

    # Queries, and events from clients

    async def attach_to_conversation(
        self, conversation_id: str, user_id: str | None = None
    ) -> ConversationRef | None:
        return await astore.call(registry.attached, conversation_id, _payer(user_id))

    async def detach_from_conversation(self, conversation: ConversationRef) -> None:
        """Nothing was held."""

    async def join_conversation(
        self,
        conversation: ConversationRef,
        connection_id: str,
        user_id: str,
        settings: Mapping[str, Any] | None = None,
    ) -> AgentLoopInfo:
        self._joined[connection_id] = conversation, int(user_id)
        await presence.come(connection_id, conversation, int(user_id), door="v0")
        self.start_soon(conversation)
        infos = await self.get_agent_loop_info(user_id, [conversation.public_id])
        return infos[0] if infos else _starting(conversation)

    async def is_agent_loop_running(self, conversation_id: str) -> bool:
        return bool(await self.get_running_agent_loops(filter_to_sids={conversation_id}))

    async def get_running_agent_loops(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> set[str]:
        return {info.conversation_id for info in await self.get_agent_loop_info(user_id, filter_to_sids)}

    async def get_connections(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> dict[str, str]:
        return await astore.call(registry.connections, _payer(user_id), filter_to_sids)

    async def get_agent_loop_info(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> list[AgentLoopInfo]:
        return await astore.call(registry.infos, _payer(user_id), filter_to_sids)

    async def _infos(self, rows: Any) -> list[AgentLoopInfo]:
        return await astore.call(registry.infos_of, rows)

    async def send_to_event_stream(self, connection_id: str, data: Mapping[str, Any]) -> int | None:
        if connection_id not in self._joined:
            raise LoopUnavailable(f"no_connected_session:{connection_id}")
        conversation, user_id = self._joined[connection_id]
        return await self.send_event_to_conversation(conversation, data, sender_id=user_id)

    async def disconnect_from_session(self, connection_id: str) -> None:
        self._joined.pop(connection_id, None)
        await presence.go(connection_id)

    async def request_llm_completion(
        self, conversation_id: str, service_id: str, llm_config: Any, messages: Sequence[Mapping[str, str]]
    ) -> str:
        loop = self.get_agent_session(conversation_id)
        if loop is None:
            raise LoopUnavailable(f"no_conversation:{conversation_id}")
        return (await loop.agent.complete(messages)).strip()


_failing_tasks = Outage(__name__, "A task of the manager failed")
_failing_commands = Outage(__name__, "A command to an agent failed and is tried again")


class _logged(suppress):  # noqa: N801 - reads as a statement, like suppress itself
    """Log the failures of one round of a task that must continue."""

    def __init__(self, what: str, **facts: object) -> None:
        super().__init__(Exception)
        self._outage = _outage_of(what)
        self._facts = facts

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(exc_value, StoreUnavailable):
            pass  # logged already
        elif isinstance(exc_value, Exception):
            self._outage.failed(exc_value, **self._facts)
        elif exc_value is None:
            self._outage.worked()
        return super().__exit__(exc_type, exc_value, traceback)


@cache
def _outage_of(what: str) -> Outage:
    return Outage(__name__, f"{what} failed and is tried again", f"{what} works again")


_OUTCOMES = {
    Asked.BEGUN: CommandOutcome.DONE,
    Asked.RUNS: CommandOutcome.RUNS,
    Asked.NOTHING: CommandOutcome.NOTHING,
}


async def _all_of(*works: Coroutine[Any, Any, None]) -> None:
    """Await all of them to their ends; raise the first failure, with CommandPending last."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    failures = [each for each in outcomes if isinstance(each, BaseException)]
    for failure in sorted(failures, key=lambda each: isinstance(each, CommandPending)):
        raise failure


async def _for_each(
    conversations: Sequence[ConversationRef], act: Callable[[ConversationRef], Coroutine[Any, Any, None]]
) -> None:
    """Act on all, AT_ONCE at a time; raise the first failure after that, with CommandPending last."""
    room = asyncio.Semaphore(AT_ONCE)

    async def in_turn(each: ConversationRef) -> None:
        async with room:
            await act(each)

    await _all_of(*map(in_turn, conversations))


def _payer(user_id: str | None) -> User | None:
    """Return the user whose share of the threads a query counts in; None for the server's."""
    return User(pk=int(user_id)) if user_id else None


def _starting(conversation: ConversationRef) -> AgentLoopInfo:
    return AgentLoopInfo(
        conversation_id=conversation.public_id,
        status=LoopStatus.STARTING,
        runtime_status=None,
        execution_status=ExecutionStatus.IDLE,
    )


def _renew_leases(held: Mapping[int, int], process: Process) -> set[int]:
    try:
        return leases.renew(held, process)
    finally:
        connections.close_all()  # close it: an idle connection may be broken at the next use


def manager_class() -> type[ConversationManager]:
    return cast(type[ConversationManager], import_string(settings.CONVERSATION_MANAGER))


def _made() -> ConversationManager:
    return manager_class().get_instance()


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
    "AgentLoopInfo",
    "ConversationManager",
    "ConversationNotFound",
    "close_manager",
    "get_manager",
    "manager_class",
]
