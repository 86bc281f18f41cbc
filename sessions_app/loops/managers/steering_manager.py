"""The part of a manager that steers loops, in this process or in the one that runs them."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, assert_never

from conversations import families, live
from conversations.events import Dialect, NewEvent
from conversations.exceptions import ConversationError, ConversationNotFound, LoopUnavailable
from conversations.models import ConversationRef, normal_id
from conversations.outages import Outage
from conversations.server_log import ids_of
from sessions_app import astore
from sessions_app.agents.remote.waiting import AgentAway
from sessions_app.loops import command_channel, commands, decisions, pauses, pending_work, recovery, runs
from sessions_app.loops.command_channel import CommandChannel
from sessions_app.loops.commands import CommandPending, ReceivedCommand
from sessions_app.loops.leases import LoopHeld
from sessions_app.loops.loop import Loop
from sessions_app.loops.managers.rounds import all_of, for_each
from sessions_app.loops.managers.stops import Stops
from sessions_app.loops.registry import RegistryConversationManager
from sessions_app.loops.runs import RunOutcome, TakenMessage
from sessions_app.models import AllowedFor, CommandOutcome, UnknownAnswer, Verb
from sessions_app.processes import Process, this_process

T = TypeVar("T")

_unresumed = Outage(__name__, "A pause could not be taken back", "Pauses are taken back again")
_failing_commands = Outage(__name__, "A command to an agent failed and is tried again")

_OUTCOMES = {
    RunOutcome.BEGUN: CommandOutcome.DONE,
    RunOutcome.RUNS: CommandOutcome.RUNS,
    RunOutcome.NOTHING: CommandOutcome.NOTHING,
}


class SteeringConversationManager(RegistryConversationManager):
    """Stops, pauses, resumes and interrupts loops; a subclass starts them."""

    def __init__(self, process: Process | None = None) -> None:
        """`process` holds the leases; by default it is the running one."""
        super().__init__()
        self._process = process or this_process()
        self._loops: dict[int, Loop] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        # Stops of the loops here: they cancel starts that were requested before.
        self._stops = Stops()
        self._commands = CommandChannel(
            self._process,
            held=lambda: {pk: loop.epoch for pk, loop in self._loops.items()},
            obey=lambda command: self._own(self._obey(command)),
            wake=self._wake_loop_here,
        )

    @abstractmethod
    async def _start(
        self, conversation: ConversationRef, *, by_sweep: bool = False, stops: int | None = None
    ) -> None:
        """Start a loop and return once it takes turns; see StandaloneConversationManager."""

    @abstractmethod
    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work as a task of the manager."""

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
            # Its loop has ended meanwhile: look again who holds the next one, if there is one.

    async def _obey(self, command: ReceivedCommand) -> None:
        """Carry out another process's command; releasing the loop settles a command that ends it."""
        loop = self._loops.get(command.conversation_pk)
        if loop is None or loop.epoch != command.epoch:
            return  # the release of that loop has settled it
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

    async def _obey_in(self, loop: Loop, command: ReceivedCommand) -> CommandOutcome:
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
            await all_of(self._close(conversation, until), self._close_below(conversation, until))

    async def close_sub_conversations(self, conversation: ConversationRef) -> None:
        await self._close_below(conversation, time.monotonic() + command_channel.WAIT_S)

    async def _close_below(self, conversation: ConversationRef, until: float) -> None:
        family = await astore.call(families.family_of, conversation)
        await self._close_each(family[1:], until)

    async def _close_each(self, conversations: Sequence[ConversationRef], until: float) -> None:
        async def close(each: ConversationRef) -> None:
            with suppress(ConversationNotFound):
                await self._close(each, until)

        await for_each(conversations, close)

    async def _close(self, conversation: ConversationRef, until: float) -> None:
        """Stop one loop. Raise CommandPending if it has not ended by `until`; it ends later."""
        self._stops.note(conversation.pk)  # at once, so that a start that is under way does not follow
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
        return asked not in (RunOutcome.RUNS, CommandOutcome.RUNS)

    async def _ask_run_here(self, conversation: ConversationRef) -> RunOutcome:
        loop = self._loops.get(conversation.pk)
        asked = await (loop.ask_run() if loop is not None else astore.change(runs.ask, conversation))
        if asked is RunOutcome.BEGUN:
            self.start_soon(conversation)  # it is stored, whatever the outcome of the start
        elif asked is RunOutcome.NOTHING:
            live.announce_run(conversation)  # clients that wait for the end of the run learn that it is over
        return asked

    async def take_input(
        self, conversation: ConversationRef, message: NewEvent, *, run: bool
    ) -> TakenMessage:
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
        if not await self._pause(conversation):  # a dead loop's turn has to be repaired before it can wait
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
        always: AllowedFor | None = None,
    ) -> None:
        await astore.change(
            decisions.decide,
            conversation,
            accept,
            reason,
            call_seq=call_seq,
            event_id=event_id,
            outcome=outcome,
            always=always,
        )
        self.start_soon(conversation)  # it is stored, whatever the outcome of the start

    async def request_llm_completion(
        self, conversation_id: str, service_id: str, llm_config: Any, messages: Sequence[Mapping[str, str]]
    ) -> str:
        loop = self.get_agent_session(conversation_id)
        if loop is None:
            raise LoopUnavailable(f"no_conversation:{conversation_id}")
        return (await loop.agent.complete(messages)).strip()
