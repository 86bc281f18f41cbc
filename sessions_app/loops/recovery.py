"""Ends of turns that do not end by themselves: stopped, interrupted, failed, or left by a dead loop."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import psycopg
from django.db import Error as DatabaseProblem
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Greatest
from django.utils import timezone
from redis.exceptions import RedisError

from conversations import dialects, domain_events
from conversations.dialects import CALL_INTERRUPTED, CALL_STOPPED, AgentState
from conversations.domain_events import DomainEvent
from conversations.events import Dialect
from conversations.exceptions import ConversationNotFound, Fenced
from conversations.log import writes
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef
from conversations.server_log import ids_of, log_on_commit
from sessions_app.loops import commands, leases, turn_events, turns
from sessions_app.loops.calls import left
from sessions_app.loops.commands import LeftBehind
from sessions_app.loops.inputs import titles
from sessions_app.loops.leases import LoopHeld
from sessions_app.loops.steering import ForbiddenTransition
from sessions_app.loops.turn_events import Naming
from sessions_app.loops.turns import PendingTurn
from sessions_app.models import AgentLoop, ExecutionStatus, LoopEnd, LoopStatus, Repair, Verb
from sessions_app.processes import Process

ENDED = (ExecutionStatus.FINISHED, ExecutionStatus.ERROR, ExecutionStatus.STUCK)
"""A run in one of these states is over."""


def recover(conversation: ConversationRef, process: Process) -> None:
    """Take over an abandoned loop to end its turn or prepare its continuation, and release it."""
    try:
        epoch = leases.claim(conversation, process, agent="", only_abandoned=True)
        repair(conversation, epoch)
        goes_on = AgentLoop.objects.of(conversation).going_on().exists()
        leases.release(conversation, epoch, ended_by=None if goes_on else LoopEnd.INTERRUPTED)
    except (LoopHeld, Fenced):
        pass  # a loop that was started meanwhile repairs by itself
    except ConversationNotFound:
        # Nothing can be appended to a deleted conversation; its turn waits until it is restored.
        AgentLoop.objects.of(conversation).update(
            status=LoopStatus.STOPPED, lease_expires_at=None, updated_at=timezone.now()
        )  # its commands are settled when the conversation is restored and started again


def stop_unheld(conversation: ConversationRef, process: Process, through: int) -> None:
    """End the pending turn of a loop that is not started here, and give up its inputs up to `through`.

    Raise LoopHeld if another living process holds the lease.
    """
    epoch = leases.claim(conversation, process, agent="")
    with transaction.atomic():
        leases.locked_by(conversation, epoch)
        _stop_left_turn(conversation, epoch, LeftBehind({Verb.STOP}, through, ()))
    leases.release(conversation, epoch, ended_by=LoopEnd.STOPPED)


def repair(conversation: ConversationRef, epoch: int) -> None:
    """End what a dead loop left, once, and settle its unfinished commands. Raise Fenced."""
    with transaction.atomic():
        leases.locked_by(conversation, epoch)
        unobeyed = commands.left_behind(conversation, before=epoch)
        if not unobeyed.verbs.isdisjoint({Verb.STOP, Verb.INTERRUPT}):
            _stop_left_turn(conversation, epoch, unobeyed)
    _repair_turn(conversation, epoch)
    # Last, since the caller of a command that is settled may expect its turn to be over.
    with transaction.atomic():
        leases.locked_by(conversation, epoch)
        settled = commands.settle_left(conversation, unobeyed, is_stopped=Verb.STOP in unobeyed.verbs)
    commands.announce_settled(settled)


def _stop_left_turn(conversation: ConversationRef, epoch: int, unobeyed: LeftBehind) -> None:
    """End a dead loop's turn, even one that waits for the user, after its user's stop."""
    is_v1 = conversation.dialect is Dialect.V1
    if Verb.STOP in unobeyed.verbs:
        state, status = (AgentState.IDLE if is_v1 else AgentState.STOPPED), ExecutionStatus.IDLE
    else:
        state, status = AgentState.STOPPED, ExecutionStatus.PAUSED if is_v1 else ExecutionStatus.IDLE
    turn = turns.pending_turn(conversation, epoch)
    if turn is not None:
        turn = turn.given_up(unobeyed.through)
        cut_off(conversation, epoch, turn, state, status, reason=STOPPED_REASON)
    give_up(conversation, epoch, unobeyed.through, status)


def _repair_turn(conversation: ConversationRef, epoch: int) -> None:
    """Prepare the turn that a dead loop left to be continued, or end it and record that.

    Its partial text is kept and marked either way. A turn that waits for approval or is paused was not
    interrupted: it continues.
    """
    loop = AgentLoop.objects.of(conversation).get()
    if loop.turn_id is None or turns.is_unplayed(conversation, loop.turn_id, loop):
        return
    if left.may_go_on(conversation, loop):
        left.go_on(conversation, epoch, loop.turn_id)
        return
    turn = PendingTurn(loop.turn_id, loop.turn_through, is_suspended=False)

    def record() -> None:
        Repair.note(loop, turn.turn_id, has_ended=True)
        log_on_commit("An interrupted turn was ended", **ids_of(conversation), epoch=epoch)

    cut_off(
        conversation,
        epoch,
        turn,
        AgentState.INTERRUPTED,
        ExecutionStatus.ERROR,
        reason=INTERRUPTED_REASON,
        also=record,
    )
    titles.keep_provisional_title(conversation)


def cut_off(
    conversation: ConversationRef,
    epoch: int,
    turn: PendingTurn,
    state: AgentState,
    status: ExecutionStatus,
    *,
    reason: str,
    code: str = "AgentError",
    also: Callable[[], object] | None = None,
) -> None:
    """End a turn that did not end by itself: its text is kept and marked, its calls end without result.

    `code` is that of an error. Nothing changes if it has ended already; otherwise `also` runs in the same
    transaction. Raise Fenced.
    """

    def write(naming: Naming) -> None:
        end = turn_events.end_of_turn(conversation, turn.turn_id, state, reason=reason, naming=naming)
        said = turn_events.said_of_end(
            conversation, turn.turn_id, state, code=code, reason=reason, naming=naming
        )
        # V1 clients read the reason after the state, V0 clients before it.
        ending = [end, *said] if conversation.dialect is Dialect.V1 else [*said, end]
        why = CALL_STOPPED if state in (AgentState.STOPPED, AgentState.IDLE) else CALL_INTERRUPTED
        events = [
            *turn_events.interrupted_turn(conversation, turn.turn_id, calls_ended=why, naming=naming),
            *ending,
        ]
        finish = turns.finish_turn(conversation, turn.through, status)
        writes.append(conversation, events, epoch=epoch, also=finish)

    with transaction.atomic():
        leases.locked_by(conversation, epoch)
        if not AgentLoop.objects.of(conversation).filter(turn_id=turn.turn_id).exists():
            return
        turn_events.under_a_free_id(write)
        if also is not None:
            also()
    leases.announce(conversation)


def stop_turn(conversation: ConversationRef, epoch: int, *, through: int, reason: str = "") -> None:
    """End a turn that waits for the user, if there is one, and give up the inputs up to `through`.

    Readers see that the agent stopped, unless a V1 run is already over or paused. A V1 conversation is
    paused from then on, or runs again if that was requested since. Raise Fenced.
    """
    with transaction.atomic():
        row = leases.locked_by(conversation, epoch)
        if conversation.dialect is Dialect.V0:
            status = ExecutionStatus.IDLE
        else:
            status = ExecutionStatus.RUNNING if row.asked_through > through else ExecutionStatus.PAUSED
        turn = turns.pending_turn(conversation, epoch)
        if turn is not None:
            turn = turn.given_up(through)
            cut_off(conversation, epoch, turn, AgentState.STOPPED, status, reason=reason or STOPPED_REASON)
        elif _is_at_rest(conversation):
            return
        else:
            events = turn_events.steered(conversation, AgentState.STOPPED, reason=STOPPED_REASON)
            writes.append(conversation, events, epoch=epoch)
        give_up(conversation, epoch, through, status)
    leases.announce(conversation)


def _is_over(conversation: ConversationRef) -> bool:
    return AgentLoop.objects.of(conversation).filter(execution_status__in=ENDED).exists()


def _is_at_rest(conversation: ConversationRef) -> bool:
    if conversation.dialect is not Dialect.V1:
        return False
    at_rest = [*ENDED, ExecutionStatus.PAUSED]
    return AgentLoop.objects.of(conversation).filter(execution_status__in=at_rest).exists()


INTERRUPTED_REASON = (
    "The agent was interrupted before it finished: the server stopped or lost its database. "
    "Send the message again."
)
STOPPED_REASON = "The agent was stopped."
SUPERSEDED_REASON = "The agent was interrupted by a newer message."
CROWDED_OUT_REASON = "The loop was closed to make room for another conversation; what it had said is kept."
INTERNAL = "The server failed. See its log for the cause."


def reason_of(error: Exception) -> str:
    """Return the reason for readers why a turn or loop failed."""
    cause: BaseException | None = error
    while cause is not None:
        # Texts of these show addresses, statements and values, and readers are not the operator.
        if isinstance(cause, (DatabaseProblem, psycopg.Error, RedisError, ForbiddenTransition)):
            return INTERNAL
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def give_up_unheld(conversation: ConversationRef, through: int) -> None:
    """Give up the inputs up to `through`, if no living process runs the loop."""
    with transaction.atomic():
        row = lock(Conversation.objects.active(), conversation)
        loop = AgentLoop.objects.of(conversation).first()
        if row is None or (loop is not None and loop.is_held()):
            return
        rows = Conversation.objects.filter(pk=row.pk)
        rows.update(answered_through=Greatest("answered_through", through), listed_at=timezone.now())
        # A run that was requested and never begun.
        asked = AgentLoop.objects.of(conversation).filter(turn_id=None)
        asked.filter(execution_status=ExecutionStatus.RUNNING).update(execution_status=ExecutionStatus.IDLE)
        # A loop that was claimed and left may have a turn to end; the sweep does that.
        unclaimed = Q(status=LoopStatus.STARTING, epoch=0)
        AgentLoop.objects.of(conversation).filter(Q(status=LoopStatus.ERROR) | unclaimed).update(
            status=LoopStatus.STOPPED, ended_by=LoopEnd.STOPPED, error="", updated_at=timezone.now()
        )
    leases.announce(conversation)


def fail(conversation: ConversationRef, error: str) -> None:
    """Record that no loop could be started, unless a living process runs one; a later start may succeed."""
    now = timezone.now()
    with transaction.atomic():
        loop = leases.locked_loop(leases.locked(conversation))
        if loop.is_held():
            return
        if conversation.dialect is Dialect.V1 and loop.execution_status == ExecutionStatus.RUNNING:
            _fail_run(conversation, loop, error)
        elif (loop.status, loop.error) == (LoopStatus.ERROR, error):
            return  # each sweep fails again, and readers have seen it
        Conversation.objects.filter(pk=conversation.pk).update(listed_at=now)
        AgentLoop.objects.of(conversation).update(
            status=LoopStatus.ERROR,
            runtime_status="STATUS$ERROR",
            ended_by=LoopEnd.FAILED,
            error=error,
            updated_at=now,
        )
        domain_events.record(conversation.pk, DomainEvent.LOOP)
    leases.announce(conversation)


def _fail_run(conversation: ConversationRef, loop: AgentLoop, error: str) -> None:
    """End a run that no loop can play, and the turn that it would have continued."""
    code = "LoopUnavailable"
    if loop.turn_id is not None:
        turn = PendingTurn(loop.turn_id, loop.turn_through, is_suspended=True)
        ending = (AgentState.ERROR, ExecutionStatus.ERROR)
        cut_off(conversation, leases.locked(conversation).loop_epoch, turn, *ending, reason=error, code=code)
        return
    author = dialects.author(conversation.dialect)
    state_id, error_id = str(uuid4()), str(uuid4())
    state = author.state(state=AgentState.ERROR, event_id=state_id)
    said = author.error(code=code, detail=error, event_id=error_id)
    writes.append(conversation, [state.event(state_id), said.event(error_id)])
    AgentLoop.objects.of(conversation).update(execution_status=ExecutionStatus.ERROR)


def give_up(
    conversation: ConversationRef,
    epoch: int,
    through: int,
    status: ExecutionStatus = ExecutionStatus.IDLE,
) -> None:
    """Give up the inputs up to `through`: a stopped agent stays silent. Raise Fenced."""
    with transaction.atomic():
        row = leases.locked_by(conversation, epoch)
        rows = Conversation.objects.filter(pk=row.pk)
        rows.update(answered_through=Greatest("answered_through", through))
        # Readers have seen the outcome: V1 runs that are over or paused stay so, and V0 turns that are over
        # unless inputs are given up.
        is_over = not row.is_unanswered and _is_over(conversation)
        if not (is_over or _is_at_rest(conversation)):
            AgentLoop.objects.of(conversation).update(execution_status=status, updated_at=timezone.now())
