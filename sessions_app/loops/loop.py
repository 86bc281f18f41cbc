"""One loop: takes the lease, repairs what a dead loop left, and plays turns until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

import structlog

from conversations.dialects import AgentState
from conversations.events import ConversationRef, Dialect, Metrics, NewEvent
from conversations.exceptions import ConversationError, ConversationNotFound, Fenced
from conversations.outages import Outage
from conversations.server_log import ids_of
from sessions_app import astore
from sessions_app.agents.base import Agent, AgentFailure, AgentStuck, TurnSuspended
from sessions_app.agents.chosen import loop_ended, path_of, turn_ended
from sessions_app.agents.remote.names import name_in
from sessions_app.agents.remote.programs import programs
from sessions_app.checkpoints import turns as checkpoints
from sessions_app.event_loops import uncancelled
from sessions_app.loops import leases, pauses, pending_work, recovery, runs, turns
from sessions_app.loops.calls import left
from sessions_app.loops.inputs import titles, while_working
from sessions_app.loops.playing.played_turn import PlayedTurn
from sessions_app.loops.playing.retries import retry
from sessions_app.loops.runs import RunOutcome, TakenMessage
from sessions_app.loops.steering import Interruption, PauseRequest, Stay, Steering
from sessions_app.loops.turns import AgentNotHere, PendingTurn, TurnStart
from sessions_app.models import AgentLoop, ExecutionStatus, LoopEnd
from sessions_app.processes import Process

logger = structlog.stdlib.get_logger(__name__)

_failing = Outage(__name__, "A loop failed")
_unyielding = Outage(__name__, "A turn could not be looked at for messages that interrupt it")
_untitled = Outage(__name__, "A conversation gets no title")

# An agent ends by itself between two steps; this much longer may its last step take.
LATE_S = 5.0

P = ParamSpec("P")
T = TypeVar("T")


class Loop:
    def __init__(
        self,
        conversation: ConversationRef,
        agent: Agent,
        process: Process,
        *,
        lease_s: float = leases.LEASE_S,
    ) -> None:
        self.conversation = conversation
        self.epoch = 0
        self.agent = agent
        self.started = asyncio.Event()
        self._process = process
        self._lease_s = lease_s
        # One flag for all that may be new: the loop itself looks up what there is to do.
        self._asked = asyncio.Event()
        self._turn: PlayedTurn | None = None
        self._playing: asyncio.Future[None] | None = None
        self._steering = Steering()
        # Pause and run take effect in the order in which they were requested.
        self._in_order = asyncio.Lock()
        self._titling: asyncio.Task[None] | None = None
        # The totals that V1 readers have seen last.
        self._counted: Metrics | None = None
        self._hands_over = False
        # Whether its turn goes on in another process.
        self._goes_on = False

    @property
    def is_wanted(self) -> bool:
        return self._steering.given_up_through is None

    @property
    def is_working(self) -> bool:
        return self._steering.is_in_turn

    @property
    def is_leaving(self) -> bool:
        return self._steering.stay is not Stay.STAYS

    @property
    def is_ending(self) -> bool:
        return self._steering.stay is Stay.ENDS

    @property
    def ended_by(self) -> LoopEnd:
        return LoopEnd.EVICTED if self._steering.is_evicted else LoopEnd.INTERRUPTED

    def wake(self) -> None:
        self._asked.set()

    def leave(self) -> None:
        self._steer(self._steering.leave())
        self._asked.set()

    def mark_stopped(self, *, through: int) -> None:
        """Note that the user stopped it: inputs up to `through` are given up when it ends."""
        self._steer(self._steering.stop(through=through))

    def mark_evicted(self) -> None:
        self._steer(self._steering.evict())

    def mark_handed_over(self) -> None:
        """Note that its turn goes on in another process when it ends, if the agent can."""
        self._hands_over = True

    def mark_ending(self) -> None:
        """Note that its task is about to be cancelled. Raise ForbiddenTransition the second time."""
        self._steer(self._steering.end())

    async def pause(self) -> None:
        """Pause: after the current step if a turn is being played, otherwise at once."""
        async with self._in_order:
            self._steer(self._steering.want_pause())
            if not self.is_working and await astore.change(self._pause_now):
                self._steer(self._steering.drop_pause())

    def _pause_now(self) -> bool:
        return pauses.pause(self.conversation, holder=self._process)

    async def resume(self) -> None:
        """Cancel a pause, even one that has not taken effect yet."""
        async with self._in_order:
            self._steer(self._steering.resume())
            await astore.change(pauses.resume, self.conversation)
        self.wake()

    async def ask_run(self) -> RunOutcome:
        """Request a run; this cancels a pause that has not taken effect yet."""
        async with self._in_order:
            was_pausing = self._take_pause_back()
            given_up = self._steering.interrupted_through
            asked = await astore.change(runs.ask, self.conversation, given_up=given_up)
        self.wake()
        # The run was about to pause, so its client sees a run begin.
        return RunOutcome.BEGUN if was_pausing and asked is RunOutcome.RUNS else asked

    async def take(self, message: NewEvent, *, run: bool) -> TakenMessage:
        """Store the user's message; if it asks for a run, it cancels a pause that is still pending."""
        async with self._in_order:
            was_pausing = run and self._take_pause_back()
            given_up = self._steering.interrupted_through
            said = await astore.call_settled(
                runs.take, self.conversation, message, run=run, given_up=given_up
            )
            if was_pausing and not said.asks:  # a repeated message requests nothing
                self._steer(self._steering.restore_pause())
        if said.asks:
            self.wake()
        return said

    async def interrupt(self, *, through: int | None = None) -> None:
        """End the turn that is played or waits, and give up its inputs; the loop stays.

        A playing agent is cancelled; a run that is requested meanwhile follows its turn. `through` is the
        newest input to give up, by default the newest of all.
        """
        if through is None:  # read before the wait for the lock: later inputs are not given up
            through = await astore.call(pending_work.asked_through, self.conversation)
        async with self._in_order:
            if self._steering.is_interruptible:
                self._steer(self._steering.interrupt(through=through))
                if self._playing is not None:  # else `_play_to_its_end` does not begin to play
                    self._playing.cancel()
            else:
                self._steer(self._steering.forget_runs())
                await self._persist(partial(recovery.stop_turn, through=through))
                turn_ended(self.agent)

    async def _yield_to_messages(self, turn: PlayedTurn) -> None:
        """Interrupt the turn once a message supersedes it; the next turn answers that message.

        No command is needed: the message's row has its effect, and the holder only has to look.
        """
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                async with self._in_order:
                    through = await astore.call(
                        while_working.superseded_through, self.conversation, turn.turn_id
                    )
                    if through is not None and self._steering.can_be_superseded and self._playing is not None:
                        self._steer(self._steering.supersede(through=through))
                        self._playing.cancel()
            except Exception as error:  # the next message or sweep looks again
                _unyielding.failed(error, **ids_of(self.conversation))
            else:
                _unyielding.worked()

    def _take_pause_back(self) -> bool:
        """Cancel a pause that has not taken effect; return whether there was one."""
        was_pausing = self._steering.is_pause_wanted
        self._steer(self._steering.take_pause_back())
        return was_pausing

    def _steer(self, steering: Steering) -> None:
        """Change the loop's steering, and set whether the turn under way is to pause."""
        self._steering = steering
        if self._turn is not None:
            self._turn.pause_wanted = steering.is_pause_wanted

    async def run(self) -> None:
        """Run until cancelled or fenced; cancelling ends the turn and releases the lease.

        Raise LoopHeld, ConversationBusy or ConversationNotFound if the lease cannot be taken.
        """
        try:
            await _to_its_end(self._claim)
            await self._serve()
        except asyncio.CancelledError:
            if self.epoch:  # else there is no lease to release, and no turn
                await asyncio.shield(self._give_up())
            raise
        finally:
            if self._titling is not None:
                self._titling.cancel()
            await uncancelled(loop_ended(self.agent))

    def _claim(self) -> None:
        path = path_of(self.agent)
        # Set in the thread: a task that is cancelled meanwhile gets no result, but has a lease to release.
        self.epoch = leases.claim(self.conversation, self._process, agent=path, lease_s=self._lease_s)

    async def _serve(self) -> None:
        try:
            await self._persist(recovery.repair)  # first: readers of `ready` see no turn of a dead loop
            await self._persist(turns.greet)
            await self._persist(leases.ready)
            self.started.set()
            await self._pause_if_wanted()
            await self._play_turns()
            await self._persist(partial(leases.release, ended_by=LoopEnd.IDLE))
        except Fenced as error:
            await self._note_refused(error)
        except ConversationNotFound:
            logger.info("The agent ends: its conversation was deleted", **ids_of(self.conversation))
            with suppress(Fenced):
                await self._persist(partial(leases.release, ended_by=LoopEnd.STOPPED))
        except Exception as error:
            _failing.failed(error, **ids_of(self.conversation))
            with suppress(ConversationError):
                end = partial(leases.release, ended_by=LoopEnd.FAILED, error=recovery.reason_of(error))
                await astore.change(end, self.conversation, self.epoch)

    async def _note_refused(self, error: Fenced) -> None:
        logger.warning("The agent was refused a write", **ids_of(self.conversation), error=str(error))
        await astore.change(leases.count_refused_write, self.conversation)

    async def _play_turns(self) -> None:
        while True:
            self._asked.clear()  # before the look: what is committed after it sets the flag again
            turn = await self._begin()
            if turn is not None:
                if self._titling is None:
                    titling = self._titled(titles.set_generated_title(self.conversation, self.agent))
                    self._titling = asyncio.get_running_loop().create_task(titling)
                await self._play(turn)
                await checkpoints.after_turn(self.conversation)
                if self.is_ending:
                    raise asyncio.CancelledError  # the agent has swallowed the cancellation
                await self._pause_if_wanted()
            elif self.is_leaving:
                return
            else:
                # A message to a paused agent is the conversation's first message, too.
                await self._titled(astore.change(titles.set_provisional_title, self.conversation))
                await self._asked.wait()

    async def _begin(self) -> PlayedTurn | None:
        """Begin a turn; commands find either none yet or this one."""
        async with self._in_order:
            try:
                start = await self._persist(partial(turns.begin_turn, is_here=self._is_here()))
            except AgentNotHere:  # the loop is started again where the agent is
                self.leave()
                return None
            if start is None:
                return None
            if start.is_behind:
                self._asked.set()  # the turn itself looks for later inputs
            turn = self._turn = PlayedTurn(self.conversation, self.epoch, start)
            self._steer(self._steering.begin_turn())
            return turn

    def _is_here(self) -> Callable[[str], bool]:
        """Return a thread-safe test whether an agent can play here: a program must be attached."""
        attached = programs()

        def is_here(agent: str) -> bool:
            name = name_in(agent)
            return name is None or attached.find(self.conversation, name) is not None

        return is_here

    async def _titled(self, giving: Awaitable[None]) -> None:
        # Its failure affects nothing else.
        try:
            await giving
        except Exception as error:
            _untitled.failed(error, **ids_of(self.conversation))

    async def _pause_if_wanted(self) -> None:
        """Apply a pause that was requested during a turn's last step, or before a repair."""
        async with self._in_order:
            wanted = self._steering.is_pause_wanted
            self._steer(self._steering.drop_pause())
            if wanted:
                await retry(lambda: _to_its_end(self._pause_now))

    async def _play(self, turn: PlayedTurn) -> None:
        """Play a turn and end or suspend it; commands come before its end or after it."""
        self._counted = self._counted or turn.start.counted
        waits = False
        try:
            end = await self._played(turn)
            async with self._in_order:
                waits = await end() is True
        finally:
            self._turn = None
            self._steer(self._steering.end_turn())
            if not waits:
                turn_ended(self.agent)

    async def _played(self, turn: PlayedTurn) -> Callable[[], Awaitable[bool | None]]:
        """Play the agent; return the remaining step, which returns whether the turn waits for the user."""
        try:
            await turn.prepare()
            await self._play_to_its_end(turn)
        except TurnSuspended as suspended:
            leases.announce(self.conversation)  # the append announced its events, not the new status
            return partial(self._suspend, suspended)
        except asyncio.CancelledError:
            if self.is_ending or not self._steering.is_interrupted:
                raise
            return self._end_interrupted
        except (Fenced, ConversationNotFound):
            raise  # nothing more can be stored under this epoch, not even the end of the turn
        except AgentFailure as error:
            logger.warning("The agent failed", **ids_of(self.conversation), error=str(error))
            return partial(self._end_in_error, turn.start, error)
        except Exception as error:
            logger.exception("The agent raised an error", **ids_of(self.conversation))
            return partial(self._end_in_error, turn.start, error)
        return partial(self._end, turn.start)

    async def _suspend(self, suspended: TurnSuspended) -> bool:
        """Leave a turn to the user; end one that was interrupted, continue where a pause was taken back.

        Return True if the turn has not ended: it waits for the user, or continues at once. A turn that has
        asked for an approval just before a message was to interrupt it keeps waiting, as after any message.
        """
        if self._steering.is_interrupted and not self._steering.is_superseded:
            await self._end_interrupted()
            return False
        if self._steering.pause is PauseRequest.TAKEN_BACK and suspended.args == (AgentState.PAUSED,):
            await retry(lambda: _to_its_end(runs.ask, self.conversation))
            self.wake()
        return True

    async def _play_to_its_end(self, turn: PlayedTurn) -> None:
        """Play the agent in a task of its own, so that an interruption ends only that task."""
        if self._steering.is_interrupted:
            raise asyncio.CancelledError  # while the turn was being prepared
        self._steer(self._steering.begin_play())
        yielding = asyncio.get_running_loop().create_task(self._yield_to_messages(turn))
        try:
            playing = self._playing = asyncio.ensure_future(self.agent.play(turn))
            is_late = False
            while not playing.done():
                # The agent itself should end in time; one that does not look at its time is cancelled.
                timeout = None if (left_s := turn.seconds_left) is None else left_s + LATE_S
                try:
                    await asyncio.wait({playing}, timeout=timeout)
                except asyncio.CancelledError:  # the loop ends: its agent does so first
                    playing.cancel()
                else:
                    is_late = not playing.done() and playing.cancel()
            if is_late and playing.cancelled() and not self._steering.is_interrupted:
                await self._let_writes_end()
                raise turn.out_of_time()
            playing.result()
        finally:
            yielding.cancel()
            self._playing = None
            self._steer(self._steering.end_play())
            await asyncio.shield(turn.settle())  # also a cancelled turn has used models

    async def _end_interrupted(self) -> None:
        await self._let_writes_end()
        through = self._steering.interrupted_through
        through = -1 if through is None else through
        reason = recovery.SUPERSEDED_REASON if self._steering.is_superseded else recovery.STOPPED_REASON
        await self._persist(partial(recovery.stop_turn, through=through, reason=reason))
        if self._steering.interruption is Interruption.RESUMED:
            await retry(lambda: _to_its_end(pauses.resume, self.conversation))

    async def _end(self, start: TurnStart) -> None:
        finish = partial(
            runs.finish,
            start=start,
            counted=self._counted or start.counted,
            given_up=self._steering.interrupted_through,
        )
        self._counted = await self._persist(finish)

    async def _end_in_error(self, start: TurnStart, error: Exception) -> None:
        if self._steering.is_interrupted:
            await self._end_interrupted()  # it failed because it was interrupted
            return
        turn = PendingTurn(start.turn_id, start.through, is_suspended=False)
        state, status = AgentState.ERROR, ExecutionStatus.ERROR
        is_v1 = self.conversation.dialect is Dialect.V1
        if isinstance(error, AgentStuck) and is_v1:
            state, status = AgentState.STUCK, ExecutionStatus.STUCK
        ending = (state, status, recovery.reason_of(error))
        if isinstance(error, AgentFailure):
            code = error.code
        else:
            code = type(error).__name__ if is_v1 else "AgentError"
        await retry(lambda: _to_its_end(self._cut_off, turn, *ending, code=code))

    async def _persist(self, act: Callable[[ConversationRef, int], T]) -> T:
        """Run repeatable work of the loop under its lease."""
        # To its end: a thread goes on after a cancellation, and the next step must not overtake it.
        return await retry(lambda: _to_its_end(act, self.conversation, self.epoch))

    async def _let_writes_end(self) -> None:
        # An empty append waits behind all running ones, so that none follows the end of the turn.
        await retry(lambda: astore.append(self.conversation, [], epoch=self.epoch))

    async def _give_up(self) -> None:
        """End the turn that a stop interrupted, keep its text, and release the lease."""
        try:
            await self._let_writes_end()
            await retry(lambda: astore.change(self._store_stop))
        except ConversationNotFound:
            pass
        except Fenced as error:  # another loop has taken over, and this one would have written
            await self._note_refused(error)
        with suppress(Fenced):
            ended_by = self.ended_by if self.is_wanted else LoopEnd.STOPPED
            release = partial(leases.release, ended_by=None if self._goes_on else ended_by)
            await self._persist(release)
        await self._titled(astore.change(titles.keep_provisional_title, self.conversation))

    def _store_stop(self) -> None:
        turn = turns.pending_turn(self.conversation, self.epoch)
        if turn is not None and turn.is_suspended and self.is_wanted:
            pass  # it waits for the user, and continues in the next loop
        elif turn is not None and self._hands_over and self.is_wanted and self._hand_over(turn):
            self._goes_on = True
        elif turn is not None:
            is_v1 = self.conversation.dialect is Dialect.V1
            stopped = AgentState.IDLE if is_v1 else AgentState.STOPPED
            state = AgentState.INTERRUPTED if self.is_wanted else stopped
            status = ExecutionStatus.ERROR if is_v1 and self.is_wanted else ExecutionStatus.IDLE
            crowded_out = self.ended_by is LoopEnd.EVICTED
            kept = recovery.CROWDED_OUT_REASON if crowded_out else recovery.INTERRUPTED_REASON
            reason = kept if self.is_wanted else recovery.STOPPED_REASON
            if (given_up := self._steering.given_up_through) is not None:
                turn = turn.given_up(given_up)
            self._cut_off(turn, state, status, reason)
        if (through := self._steering.given_up_through) is not None:
            recovery.give_up(self.conversation, self.epoch, through)

    def _hand_over(self, turn: PendingTurn) -> bool:
        """Leave the turn to another process; return whether its agent can continue."""
        if not left.may_go_on(self.conversation, AgentLoop.objects.of(self.conversation).get()):
            return False
        left.go_on(self.conversation, self.epoch, turn.turn_id, is_crash=False)
        return True

    def _cut_off(
        self,
        turn: PendingTurn,
        state: AgentState,
        status: ExecutionStatus,
        reason: str,
        code: str = "AgentError",
    ) -> None:
        recovery.cut_off(self.conversation, self.epoch, turn, state, status, reason=reason, code=code)


async def _to_its_end(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function of the store; a cancellation takes effect after it."""
    return await uncancelled(astore.change(function, *args, **kwargs))
