"""The standalone manager: agent loops are tasks of this process."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from django.conf import settings
from django.db import connections
from django.utils.module_loading import import_string

from conversations import live
from conversations.events import Dialect, NewEvent
from conversations.exceptions import ConversationError, ConversationNotFound, LoopUnavailable
from conversations.models import Conversation, ConversationRef, normal_id
from sessions_app import (
    astore,
    decisions,
    endings,
    hub,
    known_loops,
    leases,
    pauses,
    presence,
    runs,
    unanswered,
)
from sessions_app.agents.chosen import chosen_agent
from sessions_app.conversation_manager import AgentLoopInfo, ConversationManager
from sessions_app.leases import LoopHeld
from sessions_app.loop import Loop
from sessions_app.models import AgentLoop, ExecutionStatus, LoopEnd
from sessions_app.outbox_dispatcher import Dispatcher
from sessions_app.processes import Process, this_process
from sessions_app.runs import Asked, Said
from sessions_app.search_indexer import Indexer

logger = logging.getLogger(__name__)

SWEEP_S = 5.0
SWEEP_LIMIT = 100
RENEW_S = 5.0
HOUSEKEEPING_S = 20.0
STOP_WAIT_S = 10.0
NO_AGENT = "The agent could not be made: the server's log says why."


class StandaloneConversationManager(ConversationManager):
    """All loops of this server run here, as tasks of its event loop."""

    def __init__(self) -> None:
        self._process = this_process()
        self._loops: dict[int, Loop] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewer = ThreadPoolExecutor(1, thread_name_prefix="lease-renewer")
        """Of its own: no lease may run out because the store's threads all wait for a lock."""
        self._starting: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        """By conversation: its loop is started and stopped by one caller at a time."""
        self._making_room: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        """By user: what one user's loops wait for holds up nobody else's."""
        self._stops: Counter[int] = Counter()
        """How often each conversation was stopped here: a start that was asked for before a stop is off."""
        self._unmakeable: set[int] = set()
        """Conversations for which no agent could be made, as the log says once."""
        self._swept_through = 0
        self._is_started = False
        self._is_closing = False

    @classmethod
    def get_instance(cls) -> Self:
        """Return a new manager."""
        return cls()

    async def ensure_started(self) -> None:
        """Start the sweep, the renewal of leases, the housekeeping, the outbox and the search index."""
        if self._is_started:
            return
        self._is_started = True
        works = (self._sweep, self._renew, self._keep_house, Dispatcher(self._process).run, Indexer().run)
        for work in works:
            self._own(work())

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop everything; see the seam."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        ending = {*self._tasks, *(self._end(loop) for loop in self._loops.values())}
        if ending:
            await asyncio.wait(ending, timeout=STOP_WAIT_S)
        for loop in self._loops.values():
            logger.error("The agent of conversation %s does not let go.", loop.conversation.public_id)
        await asyncio.to_thread(self._renewer.shutdown)
        await hub.close()

    # Loops

    def wake(self, conversation: ConversationRef) -> None:
        """Wake the loop that runs here, or start one."""
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            loop.wake()
        elif not self._is_closing:
            self._own(self._start_if_asked(conversation, self._stops[conversation.pk]))

    def start_soon(self, conversation: ConversationRef) -> None:
        """Wake the loop that runs here, or start one as a task of the manager."""
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            loop.wake()
        elif not self._is_closing:
            self._own(self._start_unless_refused(conversation, self._stops[conversation.pk]))

    async def _start_unless_refused(self, conversation: ConversationRef, stops: int) -> None:
        with suppress(ConversationError):  # said in the log already; the sweep tries again
            await self._start(conversation, stops=stops)

    async def _start_if_asked(self, conversation: ConversationRef, stops: int) -> None:
        if await astore.call(unanswered.is_asked, conversation):
            await self._start_unless_refused(conversation, stops)

    async def maybe_start_agent_loop(
        self,
        conversation: ConversationRef,
        settings: Mapping[str, Any] | None = None,
        initial_user_msg: NewEvent | None = None,
    ) -> AgentLoopInfo:
        """Start the loop; see the seam."""
        if conversation.pk not in self._loops:
            if initial_user_msg is not None:
                await astore.append(conversation, [initial_user_msg])
            await self._start(conversation)
        return (await self._infos(Conversation.objects.filter(pk=conversation.pk)))[0]

    async def _start(
        self, conversation: ConversationRef, *, patiently: bool = False, stops: int | None = None
    ) -> None:
        """Start a loop and return once it takes turns; `patiently` without interrupting another's turn.

        `stops` is how often the conversation had been stopped when this was asked for: one stop more, and
        it is off. Raise LoopUnavailable if it cannot, ConversationNotFound for a deleted conversation.
        """
        await self.ensure_started()
        stops = self._stops[conversation.pk] if stops is None else stops
        async with self._starting.setdefault(conversation.pk, asyncio.Lock()):
            await self._wait_for_an_ending_loop(conversation)
            if conversation.pk not in self._loops:
                async with self._making_room.setdefault(conversation.owner_id, asyncio.Lock()):
                    await self._make_room(conversation, patiently=patiently)
                    self._require_wanted(conversation, stops)
                    await self._launch(conversation)
            loop, task = self._loops[conversation.pk], self._running[conversation.pk]
        started = asyncio.ensure_future(loop.started.wait())
        await asyncio.wait({started, task}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        loop.wake()
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def _require_wanted(self, conversation: ConversationRef, stops: int) -> None:
        if self._is_closing:
            raise LoopUnavailable("The server is stopping.")
        if self._stops[conversation.pk] != stops:
            raise LoopUnavailable("The loop was stopped before it had started.")

    async def _wait_for_an_ending_loop(self, conversation: ConversationRef) -> None:
        loop = self._loops.get(conversation.pk)
        if loop is not None and loop.is_ending:
            await asyncio.wait({self._running[conversation.pk]}, timeout=STOP_WAIT_S)
            if self._loops.get(conversation.pk) is loop:
                raise LoopUnavailable("The loop is still being stopped: its agent does not let go.")

    async def _launch(self, conversation: ConversationRef) -> None:
        try:
            agent = chosen_agent()()
        except Exception as error:
            await self._note_no_agent(conversation, error)
            raise LoopUnavailable(NO_AGENT) from error
        self._unmakeable.discard(conversation.pk)
        loop = Loop(conversation, agent, self._process)
        task = asyncio.get_running_loop().create_task(loop.run())
        self._loops[conversation.pk], self._running[conversation.pk] = loop, task
        task.add_done_callback(lambda task: self._ended(loop, task))

    async def _note_no_agent(self, conversation: ConversationRef, error: Exception) -> None:
        """Let everybody see that the loop is not coming; the sweep goes on trying, and says so once."""
        if conversation.pk not in self._unmakeable:
            self._unmakeable.add(conversation.pk)
            logger.error("No agent for conversation %s", conversation.public_id, exc_info=error)
        await astore.call(endings.fail, conversation, NO_AGENT)

    def _ended(self, loop: Loop, task: asyncio.Task[None]) -> None:
        conversation = loop.conversation
        del self._loops[conversation.pk], self._running[conversation.pk]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("The loop of conversation %s could not start: %s", conversation.public_id, error)
        elif loop.ended_by is LoopEnd.CROWDED_OUT:
            pass  # it must not do the same to whom it has made room for: the sweep starts it, patiently
        elif loop.is_ending or loop.is_leaving:
            self.wake(conversation)  # something may have come while it ended

    async def _make_room(self, conversation: ConversationRef, *, patiently: bool) -> None:
        """Close the loops that are wanted least until the user may have one more.

        Raise LoopUnavailable if one of them works, or is about to, and the caller is patient.
        """
        limit = settings.CONFIGURATION.max_concurrent
        surplus = await astore.call(known_loops.surplus, conversation, limit)
        if patiently and await astore.call(_is_any_wanted, surplus):
            raise LoopUnavailable(f"All {limit} loops of the user are working.")
        for row in surplus:
            loop = self._loops.get(row.pk)
            if loop is not None:
                logger.info("Conversation %s makes room for another.", loop.conversation.public_id)
                loop.ended_by = LoopEnd.CROWDED_OUT
                await asyncio.wait({self._end(loop)}, timeout=STOP_WAIT_S)

    async def close_session(self, conversation_id: str) -> None:
        """Cancel the loop's task and wait for it; see the seam.

        A turn that waits for the user is ended as well when its loop runs nowhere.
        """
        loop = self.get_agent_session(conversation_id)
        conversation = loop.conversation if loop else await self.attach_to_conversation(conversation_id)
        if conversation is None:
            return
        self._stops[conversation.pk] += 1
        through = await astore.call(unanswered.asked_through, conversation)
        if conversation.pk not in self._loops:
            if not await astore.call(unanswered.is_suspended, conversation):
                await astore.call(endings.give_up_unheld, conversation, through)
                return
            await self._start(conversation)
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            loop.given_up_through = through
            await asyncio.wait({self._end(loop)}, timeout=STOP_WAIT_S)

    def _end(self, loop: Loop) -> asyncio.Task[None]:
        """Cancel the loop's task unless that was done before, and return it."""
        task = self._running[loop.conversation.pk]
        if not loop.is_ending:
            loop.is_ending = True
            task.cancel()
        return task

    def get_agent_session(self, conversation_id: str) -> Loop | None:
        """Return the loop if it runs here."""
        public_id = normal_id(conversation_id)
        return next((loop for loop in self._loops.values() if loop.conversation.public_id == public_id), None)

    async def run(self, conversation: ConversationRef) -> None:
        """Resume, start and wake."""
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            await loop.resume()
        else:
            await astore.call(pauses.resume, conversation)
        await self._start(conversation)

    async def ask_run(self, conversation: ConversationRef) -> bool:
        """Store the wish; the loop that runs here takes it up, or one that is started."""
        loop = self._loops.get(conversation.pk)
        asked = await (loop.ask_run() if loop is not None else astore.call(runs.ask, conversation))
        if asked is Asked.BEGUN:
            self.start_soon(conversation)  # stored is stored, whatever becomes of the start
        elif asked is Asked.NOTHING:
            live.announce_run(conversation)  # whoever waits for its end is told that it is over
        return asked is not Asked.RUNS

    async def take_input(self, conversation: ConversationRef, message: NewEvent, *, run: bool) -> Said:
        """Store it; the loop that runs here is told, or one is started."""
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            return await loop.take(message, run=run)
        said = await astore.call(runs.take, conversation, message, run=run)
        if said.asks:
            self.wake(conversation)
        return said

    async def pause(self, conversation: ConversationRef) -> None:
        """Tell the loop, or pause where none is. Raise LoopHeld if another process plays a turn."""
        if not await self._pause(conversation):
            await astore.call(endings.recover, conversation, self._process)
            await self._pause(conversation)

    async def _pause(self, conversation: ConversationRef) -> bool:
        loop = self._loops.get(conversation.pk)
        if loop is None:
            try:
                return await astore.call(pauses.pause, conversation)
            except LoopHeld:
                loop = self._loops.get(conversation.pk)
                if loop is None:  # else it was started here meanwhile
                    raise
        await loop.pause()
        return True

    async def interrupt(self, conversation: ConversationRef) -> None:
        """Tell the loop; a turn that waits without one is ended by closing it."""
        loop = self._loops.get(conversation.pk)
        if loop is not None:
            await loop.interrupt()
        elif conversation.dialect is Dialect.V1:
            await astore.call(runs.interrupt_unheld, conversation)
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
    ) -> None:
        """Store the decision and let the turn go on."""
        await astore.call(
            decisions.decide, conversation, accept, reason, call_seq=call_seq, event_id=event_id
        )
        self.start_soon(conversation)  # stored is stored, whatever becomes of the start

    # Tasks of the manager

    async def _sweep(self) -> None:
        """Repair what dead loops left, and start those that are waited for; also when a wake-up was lost."""
        while True:
            with _logged("sweep"):
                here = list(self._loops)
                for conversation in await astore.call(unanswered.abandoned, SWEEP_LIMIT, besides=here):
                    if conversation.pk not in self._loops:
                        with _logged(f"recovery of conversation {conversation.public_id}"):
                            await astore.call(endings.recover, conversation, self._process)
                here = list(self._loops)
                for pk in await astore.call(unanswered.asked_among, here):
                    if pk in self._loops:
                        self._loops[pk].wake()
                after = self._swept_through
                found = await astore.call(unanswered.needing_a_loop, SWEEP_LIMIT, besides=here, after=after)
                # The next round goes on behind these: none that cannot be started hides the others.
                self._swept_through = max(each.pk for each in found) if len(found) == SWEEP_LIMIT else 0
                for conversation in found:
                    with suppress(ConversationError):  # a later round tries again
                        await self._start(conversation, patiently=True)
            await asyncio.sleep(SWEEP_S)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with _logged("renewal of leases"):
                held = {pk: loop.epoch for pk, loop in self._loops.items() if loop.started.is_set()}
                lost = asyncio.get_running_loop().run_in_executor(
                    self._renewer, _renew_leases, held, self._process
                )
                for pk in await lost:
                    loop = self._loops.get(pk)
                    if loop is not None and loop.epoch == held[pk]:
                        logger.warning("The lease of conversation %s was lost.", loop.conversation.public_id)
                        self._end(loop)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            with _logged("housekeeping"):
                await astore.call(presence.touch, presence.here())
                for pk in await astore.call(known_loops.forgotten, list(self._loops)):
                    if pk in self._loops:
                        self._loops[pk].leave()

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A task of the manager failed", exc_info=error)

    # Questions, and what clients send

    async def attach_to_conversation(
        self, conversation_id: str, user_id: str | None = None
    ) -> ConversationRef | None:
        """Look the conversation up; the log needs nothing held open."""
        return await astore.call(known_loops.attached, conversation_id, user_id)

    async def detach_from_conversation(self, conversation: ConversationRef) -> None:
        """Nothing was held."""

    async def join_conversation(
        self,
        conversation: ConversationRef,
        connection_id: str,
        user_id: str,
        settings: Mapping[str, Any] | None = None,
    ) -> AgentLoopInfo:
        """Record the connection and start the loop."""
        await presence.come(connection_id, conversation, int(user_id), door="v0")
        return await self.maybe_start_agent_loop(conversation, settings)

    async def is_agent_loop_running(self, conversation_id: str) -> bool:
        """Ask for the one."""
        return bool(await self.get_running_agent_loops(filter_to_sids={conversation_id}))

    async def get_running_agent_loops(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> set[str]:
        """Read the loops' rows."""
        return {info.conversation_id for info in await self.get_agent_loop_info(user_id, filter_to_sids)}

    async def get_connections(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> dict[str, str]:
        """Read the connections' rows."""
        return await astore.call(known_loops.connections, user_id, filter_to_sids)

    async def get_agent_loop_info(
        self, user_id: str | None = None, filter_to_sids: Collection[str] | None = None
    ) -> list[AgentLoopInfo]:
        """Read the loops' rows."""
        return await astore.call(known_loops.infos, user_id, filter_to_sids)

    async def _infos(self, rows: Any) -> list[AgentLoopInfo]:
        return await astore.call(known_loops.infos_of, rows)

    async def send_to_event_stream(self, connection_id: str, data: Mapping[str, Any]) -> None:
        """Find the connection's conversation and append there."""
        found = await astore.call(known_loops.connections, None, None, [connection_id])
        if connection_id not in found:
            raise LoopUnavailable(f"no_connected_session:{connection_id}")
        await self.send_event_to_conversation(found[connection_id], data)

    async def send_event_to_conversation(self, conversation_id: str, data: Mapping[str, Any]) -> None:
        """Append and wake."""
        conversation = await self.attach_to_conversation(conversation_id)
        if conversation is None:
            raise LoopUnavailable(f"no_conversation:{conversation_id}")
        await self.take(conversation, data)

    async def disconnect_from_session(self, connection_id: str) -> None:
        """Remove the connection's row."""
        await presence.go(connection_id)

    async def request_llm_completion(
        self, conversation_id: str, service_id: str, llm_config: Any, messages: Sequence[Mapping[str, str]]
    ) -> str:
        """Ask the agent of the loop that runs here."""
        loop = self.get_agent_session(conversation_id)
        if loop is None:
            raise LoopUnavailable(f"no_conversation:{conversation_id}")
        return (await loop.agent.complete(messages)).strip()


class _logged(suppress):  # noqa: N801 - reads as a statement, like suppress itself
    """Log what goes wrong in one round of a task that must go on."""

    def __init__(self, what: str) -> None:
        super().__init__(Exception)
        self._what = what

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(exc_value, Exception):
            logger.error("A %s failed and is tried again", self._what, exc_info=exc_value)
        return super().__exit__(exc_type, exc_value, traceback)


def _is_any_wanted(loops: Sequence[AgentLoop]) -> bool:
    is_any_working = any(loop.execution_status == ExecutionStatus.RUNNING for loop in loops)
    return is_any_working or bool(unanswered.asked_among([loop.pk for loop in loops]))


def _renew_leases(held: Mapping[int, int], process: Process) -> set[int]:
    try:
        return leases.renew(held, process)
    finally:
        connections.close_all()  # seldom used, it must not be there only to have broken by the next time


_managers: WeakKeyDictionary[asyncio.AbstractEventLoop, ConversationManager] = WeakKeyDictionary()


def get_manager() -> ConversationManager:
    """Return the manager of the running event loop, which the settings choose."""
    loop = asyncio.get_running_loop()
    if loop not in _managers:
        _managers[loop] = cast(
            type[ConversationManager], import_string(settings.CONVERSATION_MANAGER)
        ).get_instance()
    return _managers[loop]


async def close_manager() -> None:
    """Close the manager of the running event loop, if it has one, and all that it used."""
    manager = _managers.pop(asyncio.get_running_loop(), None)
    if manager is not None:
        await manager.__aexit__(None, None, None)
    await hub.close()
    await astore.close()


__all__ = ["AgentLoopInfo", "ConversationManager", "ConversationNotFound", "close_manager", "get_manager"]
