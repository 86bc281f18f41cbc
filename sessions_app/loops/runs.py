"""Runs, which V1 clients request (spec V1 §2.6).

From the request on a conversation is `running`; its loop answers everything in the log, turn after turn,
until no requested input is left. Lock order as in `leases`: Conversation, then AgentLoop.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import NamedTuple
from uuid import uuid4

from django.db import transaction
from django.db.models.functions import Greatest, Least
from django.utils import timezone

from conversations import dialects
from conversations.dialects import AgentState, v1
from conversations.events import Dialect, EventFilter, Metrics, NewEvent
from conversations.exceptions import LoopUnavailable
from conversations.log import reads, wakeups, writes
from conversations.models import Conversation, ConversationRef
from sessions_app.loops import decisions, leases, recovery, turn_events, turns
from sessions_app.loops.turn_events import Naming
from sessions_app.loops.turns import TurnStart
from sessions_app.models import DEFAULT_MODEL, AgentLoop, AgentSetup, ExecutionStatus
from sessions_app.settings import run_options

OVER = (ExecutionStatus.FINISHED, ExecutionStatus.STUCK)
"""A message changes a conversation in one of these states to `idle`."""
_PROMPTS = EventFilter(types=frozenset({"SystemPromptEvent"}))
REJECTED_REASON = "User rejected the action."


class RunOutcome(Enum):
    BEGUN = auto()
    RUNS = auto()
    """A run is on already."""
    NOTHING = auto()
    """The run is over, since there was nothing to do."""


class TakenMessage(NamedTuple):
    """The seq of a message, and whether the agent is to answer it now."""

    seq: int
    asks: bool


def ask(conversation: ConversationRef, *, given_up: int | None = None) -> RunOutcome:
    """Request a run, which answers everything in the log; if a call waits for approval, this approves it.

    `given_up` is the newest input when the turn under way was interrupted, if it was; a run that is
    requested now follows it.
    """
    with transaction.atomic():
        asked = _ask(conversation, given_up)
        # On commit: V1 starts request a run in the transaction that creates the conversation.
        transaction.on_commit(lambda: leases.announce(conversation), robust=True)
    return asked


def _ask(conversation: ConversationRef, given_up: int | None) -> RunOutcome:
    row, loop = _locked(conversation)
    if given_up is not None and loop.turn_id is not None:
        return _ask_after(conversation, row, given_up)
    match loop.execution_status:
        case ExecutionStatus.RUNNING if loop.turn_id is not None or row.is_unanswered:
            return RunOutcome.RUNS
        case ExecutionStatus.WAITING_FOR_CONFIRMATION if loop.decision is not None:
            return RunOutcome.RUNS
        case ExecutionStatus.WAITING_FOR_CONFIRMATION:
            decisions.record_run(conversation)
            return RunOutcome.BEGUN
        case ExecutionStatus.FINISHED if _newest_input(conversation, row, loop) is None:
            return RunOutcome.NOTHING
    if row.last_message_at is None:
        _prompt_first(conversation, row)
        _enter(conversation, AgentState.FINISHED, ExecutionStatus.FINISHED)
        return RunOutcome.NOTHING
    _begin(conversation, row, loop)
    return RunOutcome.BEGUN


def _ask_after(conversation: ConversationRef, row: Conversation, given_up: int) -> RunOutcome:
    """Request a run after the interrupted turn, unless one was requested already."""
    if row.asked_through > given_up:
        return RunOutcome.RUNS
    asked = reads.newest_input(conversation, after=given_up)
    if asked is None:
        # After the inputs that are given up: at least the end of the turn will be there.
        asked = max(reads.last_seq(conversation), given_up + 1)
    rows = Conversation.objects.filter(pk=conversation.pk)
    rows.update(listed_at=timezone.now(), **_asked_through(asked))
    wakeups.asked([conversation.pk])
    return RunOutcome.BEGUN


def take(
    conversation: ConversationRef, message: NewEvent, *, run: bool, given_up: int | None = None
) -> TakenMessage:
    """Store the user's message; with `run`, request a run unless one is on or a call waits for approval.

    A running run answers the message; otherwise it waits for the next run. `given_up` is as in `ask`. A
    repeated event id stores and requests nothing.
    """
    with transaction.atomic():
        row, loop = _locked(conversation)
        if (seq := reads.seq_of_event(conversation, message.event_id)) is not None:
            return TakenMessage(seq, asks=False)
        status = loop.execution_status
        if conversation.dialect is Dialect.V1 and status in OVER:
            _enter(conversation, AgentState.IDLE, ExecutionStatus.IDLE)
        if given_up is not None and loop.turn_id is not None:
            asks = run or row.asked_through > given_up
        else:
            waits = status == ExecutionStatus.WAITING_FOR_CONFIRMATION
            asks = status == ExecutionStatus.RUNNING or (run and waits)
        _prompt_first(conversation, row)
        # With `asks` the append itself marks the message as requested, so a run cannot end before it.
        (appended,) = writes.append(conversation, [replace(message, asks=asks)])
        if run and not asks:
            _begin(conversation, row, loop)
    leases.announce(conversation)
    return TakenMessage(appended.seq, asks=asks or run)


def reject(conversation: ConversationRef, reason: str) -> None:
    """Reject the calls that wait for approval and end their turn without asking the agent.

    Raise LoopUnavailable if none waits.
    """
    with transaction.atomic():
        _, loop = _locked(conversation)
        if not loop.is_undecided or loop.turn_id is None:
            raise LoopUnavailable("No call is waiting for approval.")
        finish = turns.finish_turn(conversation, loop.turn_through, ExecutionStatus.IDLE)

        def end(naming: Naming) -> None:
            events = turn_events.refused_calls(conversation, str(loop.turn_id), reason, naming)
            events.append(
                turn_events.end_of_turn(conversation, str(loop.turn_id), AgentState.IDLE, naming=naming)
            )
            writes.append(conversation, events, also=finish)

        turn_events.under_a_free_id(end)
    leases.announce(conversation)


def finish(
    conversation: ConversationRef,
    epoch: int,
    start: TurnStart,
    counted: Metrics,
    *,
    given_up: int | None = None,
) -> Metrics:
    """End a turn that the agent has finished; if more was requested by now, a V1 run continues.

    `counted` are the totals that readers have seen last; return their new ones. Inputs up to `given_up`
    are not answered. Nothing changes if the turn has ended already. Raise Fenced.
    """
    is_v1 = conversation.dialect is Dialect.V1
    through = start.through if given_up is None else max(start.through, given_up)
    with transaction.atomic():
        row, loop = _locked(conversation)
        totals = turns.totals_of(row)
        if loop.turn_id != start.turn_id:
            return totals
        goes_on = is_v1 and row.asked_through > through
        state = AgentState.RUNNING if goes_on else AgentState.FINISHED
        status = ExecutionStatus.RUNNING if goes_on else ExecutionStatus.FINISHED
        also = turns.finish_turn(conversation, through, status)

        def end(naming: Naming) -> None:
            events = _told_totals(row, start.turn_id) if is_v1 and totals != counted else []
            events.append(turn_events.end_of_turn(conversation, start.turn_id, state, naming=naming))
            writes.append(conversation, events, epoch=epoch, also=also)

        turn_events.under_a_free_id(end)
    leases.announce(conversation)
    return totals


def _told_totals(row: Conversation, turn_id: str) -> list[NewEvent]:
    event_id = str(uuid4())
    model = run_options.model_of(row.ref) or row.llm_model or DEFAULT_MODEL
    totals = v1.snapshot(turns.totals_of(row), model=model)
    authored = v1.authored(v1.stats({"agent": totals}), event_id=event_id)
    return [authored.event(event_id, turn_id=turn_id)]


def interrupt_unheld(conversation: ConversationRef) -> None:
    """Interrupt a run whose loop no living process holds. Raise LoopHeld if one does."""
    with transaction.atomic():
        row, loop = _locked(conversation)
        if loop.is_held():
            raise leases.held(loop)
        recovery.stop_turn(conversation, row.loop_epoch, through=row.asked_through)
    leases.announce(conversation)


def _locked(conversation: ConversationRef) -> tuple[Conversation, AgentLoop]:
    row = leases.locked(conversation)
    return row, leases.locked_loop(row)


def _enter(conversation: ConversationRef, state: AgentState, status: ExecutionStatus) -> None:
    """Store that the conversation is in this state, outside any turn."""
    event_id = str(uuid4())
    authored = dialects.author(conversation.dialect).state(state=state, event_id=event_id)
    writes.append(conversation, [authored.event(event_id)])
    AgentLoop.objects.of(conversation).update(execution_status=status, updated_at=timezone.now())


def _prompt_first(conversation: ConversationRef, row: Conversation) -> None:
    """Store the system prompt before the first message of a conversation that a V1 client has set up."""
    # Clients since 1.10 expect it there; for older ones it is stored at the start.
    if row.last_message_at is not None or not AgentSetup.objects.filter(pk=conversation.pk).exists():
        return
    if not reads.search_events(conversation, _PROMPTS, limit=1).events:
        writes.append(conversation, [turn_events.system_prompt()])


def _begin(conversation: ConversationRef, row: Conversation, loop: AgentLoop) -> None:
    """Mark everything in the log as requested, and show the run as running from now on."""
    now = timezone.now()
    asked = _newest_input(conversation, row, loop)
    if asked is None and loop.turn_id is None:  # the inputs of a suspended turn are requested already
        asked = reads.last_seq(conversation)
    changes = {} if asked is None else _asked_through(asked)
    Conversation.objects.filter(pk=conversation.pk).update(listed_at=now, **changes)
    AgentLoop.objects.of(conversation).update(execution_status=ExecutionStatus.RUNNING, updated_at=now)
    wakeups.asked([conversation.pk])


def _asked_through(seq: int) -> dict[str, Greatest | Least]:
    # In a copy of another conversation, the last event may have been answered with the rest.
    return {
        "asked_through": Greatest("asked_through", seq),
        "answered_through": Least("answered_through", seq - 1),
    }


def _newest_input(conversation: ConversationRef, row: Conversation, loop: AgentLoop) -> int | None:
    """Return the seq of the newest input that no turn has answered or taken up."""
    after = row.answered_through if loop.turn_id is None else loop.turn_through
    return reads.newest_input(conversation, after=after)
