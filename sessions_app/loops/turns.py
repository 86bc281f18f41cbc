"""Turns as rows: begun, suspended, continued, ended. Lock order: Conversation, then AgentLoop (`leases`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import uuid4

from django.db import transaction
from django.db.models.functions import Greatest
from django.utils import timezone

from conversations import dialects, domain_events
from conversations.dialects import AgentState, v0
from conversations.domain_events import DomainEvent
from conversations.events import Appended, Dialect, EventFilter, Metrics
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef
from sessions_app.agents import registry
from sessions_app.loops import decisions, leases
from sessions_app.loops.inputs import receipts, while_working
from sessions_app.models import AgentLoop, ExecutionStatus, ToolRun, UnfinishedAnswer
from sessions_app.settings import chosen_models, run_options


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnStart:
    """A turn to play: a new one, or a suspended one that continues."""

    turn_id: str
    through: int
    """The newest input that it answers."""
    is_behind: bool
    """Whether it continues, and there are newer inputs."""
    answered_through: int
    """The newest input that earlier turns have answered."""
    is_continued: bool
    """Whether it has begun before."""
    decision: bool | None
    """The user's decision about the waiting call; None if no call waits."""
    counted: Metrics
    """The conversation's totals."""
    agent: str = ""
    """The name of the agent that plays it, from its beginning to its end."""
    model: Mapping[str, Any] | None = None
    """The model that was chosen for this turn alone."""


def greet(conversation: ConversationRef, epoch: int) -> None:
    """Show V0 readers that the agent is ready, unless the newest state in the log does. Raise Fenced."""
    # V0 clients accept no input before they have seen a state.
    if conversation.dialect is not Dialect.V0:
        return
    with transaction.atomic():
        loop = leases.locked_loop(leases.locked_by(conversation, epoch))
        if loop.is_suspended or loop.may_play:
            return
        states = EventFilter(types=v0.STATE_TYPES)
        newest = reads.search_events(conversation, states, newest_first=True, limit=1).events
        if newest and dialects.state_of(newest[0]) in (AgentState.IDLE, AgentState.FINISHED):
            return
        event_id = str(uuid4())
        authored = dialects.author(conversation.dialect).state(state=AgentState.IDLE, event_id=event_id)
        writes.append(conversation, [authored.event(event_id)], epoch=epoch)


class AgentNotHere(Exception):
    """There is work for an agent that cannot play in this process."""


def begin_turn(
    conversation: ConversationRef, epoch: int, *, is_here: Callable[[str], bool] = lambda agent: True
) -> TurnStart | None:
    """Begin the next turn, or continue a suspended one; return None if there is nothing to do.

    Without an unanswered input, the loop is idle as of this transaction: an input that is committed later
    finds it so. A continued turn answers its own inputs; later ones are for the next turn, unless it
    takes them up. If the outcome of its commit is unknown, a repeated call returns the same turn.
    Raise Fenced, and AgentNotHere if `is_here` is false for the agent's name.
    """
    now = timezone.now()
    with transaction.atomic():
        loop = leases.locked_loop(row := leases.locked_by(conversation, epoch))
        if not loop.may_play:
            return None
        recoveries = loop.recoveries
        if loop.turn_id is None:
            turn_id, through, recoveries = uuid4().hex, row.asked_through, 0
            agent, model = run_options.agent_of(conversation), chosen_models.take_next(conversation, through)
            _show(row, turn_id, after=row.answered_through, through=through)
        else:
            turn_id, through = loop.turn_id, loop.turn_through
            agent, model = loop.turn_agent, loop.turn_model
        if not is_here(agent):  # raised inside: the receipts above are undone
            raise AgentNotHere(agent)
        AgentLoop.objects.of(conversation).update(
            **({} if agent == loop.turn_agent else {"agent": registry.path_of(agent)}),
            turn_id=turn_id,
            turn_through=through,
            turn_agent=agent,
            turn_model=model,
            recoveries=recoveries,
            goes_on=False,
            execution_status=ExecutionStatus.RUNNING,
            updated_at=now,
        )
        Conversation.objects.filter(pk=conversation.pk).update(listed_at=now)  # lists show the agent's state
        domain_events.record(conversation.pk, DomainEvent.LOOP)
    leases.announce(conversation)
    return _start_of(row, loop, turn_id=turn_id, through=through, agent=agent, model=model)


def _start_of(
    row: Conversation,
    loop: AgentLoop,
    *,
    turn_id: str,
    through: int,
    agent: str,
    model: Mapping[str, Any] | None,
) -> TurnStart:
    return TurnStart(
        turn_id=turn_id,
        through=through,
        is_behind=row.asked_through > through,
        answered_through=row.answered_through,
        is_continued=loop.turn_id is not None,
        decision=loop.decision,
        counted=totals_of(row),
        agent=agent,
        model=model,
    )


def _show(row: Conversation, turn_id: str, *, after: int, through: int) -> None:
    receipts.record(row.ref, after=after, through=through, seen_seq=row.next_seq - 1, turn_id=turn_id)


def take_up(conversation: ConversationRef, epoch: int, turn_id: str) -> int:
    """Add later inputs to a turn, if they are to steer it; return its newest input.

    Other inputs are left to the next turn. A repeated call changes nothing. Raise Fenced.
    """
    with transaction.atomic():
        row = leases.locked_by(conversation, epoch)
        loop = leases.locked_loop(row)
        if loop.turn_id != turn_id or loop.execution_status != ExecutionStatus.RUNNING:
            return -1  # it was ended meanwhile
        through = row.asked_through  # under the lock that appends of inputs need, too
        if through <= loop.turn_through or not while_working.steers(conversation):
            return loop.turn_through
        _show(row, turn_id, after=loop.turn_through, through=through)
        AgentLoop.objects.of(conversation).update(turn_through=through, updated_at=timezone.now())
    leases.announce(conversation)
    return through


def totals_of(row: Conversation) -> Metrics:
    """Return the totals of a conversation so far."""
    return Metrics(
        accumulated_cost=row.accumulated_cost,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
    )


def finish_turn(
    conversation: ConversationRef, through: int, status: ExecutionStatus
) -> Callable[[Sequence[Appended]], None]:
    """Return the hook of a turn's last append: mark everything up to `through` as answered.

    Repeated after the turn has ended, it changes nothing.
    """

    def finish(appended: Sequence[Appended]) -> None:
        now = timezone.now()
        turn = AgentLoop.objects.of(conversation).filter(turn_id__isnull=False)
        if not turn.update(
            turn_id=None,
            execution_status=status,
            decision=None,
            goes_on=False,
            updated_at=now,
        ):
            return
        rows = Conversation.objects.filter(pk=conversation.pk)
        rows.update(answered_through=Greatest("answered_through", through), listed_at=now)
        UnfinishedAnswer.objects.filter(conversation_id=conversation.pk).delete()
        ToolRun.objects.of_all_turns(conversation).delete()

    return finish


def suspend_turn(
    conversation: ConversationRef, status: ExecutionStatus
) -> Callable[[Sequence[Appended]], None]:
    """Return the hook of the append that suspends a turn, which continues later under the same id.

    Repeated, it changes nothing: the user may have decided since.
    """

    def suspend(appended: Sequence[Appended]) -> None:
        if not any(each.is_new for each in appended):
            return
        now = timezone.now()
        Conversation.objects.filter(pk=conversation.pk).update(listed_at=now)
        AgentLoop.objects.of(conversation).update(execution_status=status, updated_at=now)
        if status == ExecutionStatus.WAITING_FOR_CONFIRMATION:
            decisions.forget_decision(conversation)  # an older one is about another call

    return suspend


class PendingTurn(NamedTuple):
    """A turn that has begun and not ended."""

    turn_id: str
    through: int
    """The newest input that its end settles."""
    is_suspended: bool

    def given_up(self, through: int) -> PendingTurn:
        """Return it for an end that was requested when `through` was the newest input.

        Inputs that it has taken up since are left to the next turn.
        """
        return self._replace(through=min(self.through, through))


def pending_turn(conversation: ConversationRef, epoch: int) -> PendingTurn | None:
    """Return the turn that the loop of `epoch` has begun and not ended, if there is one."""
    loop = AgentLoop.objects.of(conversation).filter(epoch=epoch, turn_id__isnull=False).first()
    if loop is None or loop.turn_id is None:
        return None
    is_suspended = is_unplayed(conversation, loop.turn_id, loop)
    return PendingTurn(loop.turn_id, loop.turn_through, is_suspended)


def is_unplayed(conversation: ConversationRef, turn_id: str, loop: AgentLoop) -> bool:
    """Return whether no loop plays the turn: it waits for the user, or has not been continued yet."""
    if loop.goes_on or loop.execution_status != ExecutionStatus.RUNNING:
        return True
    # A continued run is `running` from its request on: only the log tells whether a loop took it up.
    state = reads.newest_state(conversation, turn_id)
    return state is not None and dialects.state_in(state) is not AgentState.RUNNING
