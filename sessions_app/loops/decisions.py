"""The user's decisions about tool calls that wait for approval, or because their outcome is unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import uuid4

from django.db import transaction
from django.utils import timezone

from conversations import dialects
from conversations.dialects import columns
from conversations.events import Appended, Dialect, NewEvent
from conversations.exceptions import LoopUnavailable
from conversations.log import reads, wakeups, writes
from conversations.models import Conversation, ConversationRef
from sessions_app.agents.base import Decision, ToolCall
from sessions_app.loops import leases, turn_events
from sessions_app.loops.turn_events import Naming
from sessions_app.models import (
    AgentLoop,
    AllowedFor,
    ExecutionStatus,
    RunState,
    ToolRun,
    UnknownAnswer,
)
from sessions_app.settings import allowed_tools


class OtherCallWaits(LoopUnavailable):
    """The decision is about a call that does not wait; nothing was decided."""

    code = "conflict"


class NotUnknown(LoopUnavailable):
    """The decision tells an outcome, but no outcome is unknown; nothing was decided."""

    code = "conflict"


class PendingCall(NamedTuple):
    seq: int
    id: str
    """The id of its event."""
    tool: str
    asks: str
    """`approval`, or `outcome` if it is unknown whether the call has taken effect."""


def pending(conversation: ConversationRef) -> list[PendingCall]:
    """Return the calls that wait for the user's next decision, oldest first."""
    if not AgentLoop.objects.of(conversation).undecided().exists():
        return []
    runs = ToolRun.objects.of(conversation)
    asks, found = "outcome", list(runs.unknown()[:1])
    if not found:
        asks, found = "approval", list(runs.waiting())
    return [PendingCall(run.call_seq, run.call_id, run.name, asks) for run in found]


def made(conversation: ConversationRef, turn_id: str) -> list[Decision]:
    """Return what the user decided about the open calls of a turn that continues, in their order."""
    runs = {run.call_id: run for run in ToolRun.objects.of(conversation)}
    found = []
    for call in reads.open_calls(conversation, turn_id):
        run = runs.get(call["id"])
        if run is not None and run.state in (RunState.APPROVED, RunState.REJECTED):
            accepted = run.state == RunState.APPROVED
            found.append(Decision(call=ToolCall.of(call), accepted=accepted, reason=run.reason))
    return found


def decide(
    conversation: ConversationRef,
    accepted: bool,
    reason: str,
    *,
    call_seq: int | None = None,
    event_id: str | None = None,
    outcome: UnknownAnswer | None = None,
    always: AllowedFor | None = None,
) -> None:
    """Store and announce the decision about the calls that wait. Raise LoopUnavailable if none does.

    All calls that wait for approval are decided together. If a call waits because its outcome is unknown,
    the decision is about that one: accepting runs it again, rejecting skips it, unless `outcome` says
    what to do. `reason` is the user's comment; for a call that is done, it is the result. With `always`,
    later calls of the approved tool run without approval.

    `call_seq` names the call that the caller saw last: the last of those that wait for approval, or the first
    of unknown outcome. Raise OtherCallWaits, and decide nothing, if it is another one. An approval
    continues the run of a V1 conversation, which also answers later messages.
    Repeated under the same `event_id` it changes nothing, even if another call waits by now.
    """
    record_decision(
        conversation,
        accepted,
        reason,
        call_seq=call_seq,
        event_id=event_id,
        outcome=outcome,
        always=always,
    )
    leases.announce(conversation)


def record_decision(
    conversation: ConversationRef,
    accepted: bool,
    reason: str,
    *,
    call_seq: int | None = None,
    event_id: str | None = None,
    outcome: UnknownAnswer | None = None,
    always: AllowedFor | None = None,
) -> None:
    """Do what `decide` does in the caller's transaction; the caller announces it."""
    event_id = event_id or str(uuid4())
    with transaction.atomic():
        leases.locked(conversation)
        asked = None
        # A repeated decision is not about a call whose outcome became unknown since.
        if reads.seq_of_event(conversation, event_id) is None:
            asked = ToolRun.objects.of(conversation).unknown().first()
        if asked is None:
            _decide_waiting(conversation, accepted, reason, call_seq, event_id, outcome, always)
        else:
            if always is not None:
                raise OtherCallWaits("A call of unknown outcome waits: say first what became of it.")
            answer = outcome or (UnknownAnswer.RUN_AGAIN if accepted else UnknownAnswer.SKIP)
            _decide_unknown(conversation, asked, answer, reason, call_seq, event_id)


def record_run(conversation: ConversationRef) -> None:
    """Take a request to run as the approval of the calls that wait, in the caller's transaction."""
    with transaction.atomic():
        leases.locked(conversation)
        unknown = list(ToolRun.objects.of(conversation).unknown())
        # A client that attaches again requests a run without having seen what waits: that must not run a
        # call a second time.
        if unknown:
            _tell_unknown(conversation, unknown)
        else:
            record_decision(conversation, True, "")


def _tell_unknown(conversation: ConversationRef, unknown: Sequence[ToolRun]) -> None:
    calls = reads.read_some(conversation, event_ids=[run.call_id for run in unknown])

    def record(appended: Sequence[Appended]) -> None:
        _continue(conversation, True, runs=True)
        for run in unknown:
            ToolRun.objects.of_call(conversation, run.call_id).enter(RunState.ANSWERED)

    def append(naming: Naming) -> None:
        told = [
            turn_events.failed_call(conversation, call, turn_events.OUTCOME_UNKNOWN, naming) for call in calls
        ]
        writes.append(conversation, told, also=record)

    turn_events.under_a_free_id(append)


def _decide_waiting(
    conversation: ConversationRef,
    accepted: bool,
    reason: str,
    call_seq: int | None,
    event_id: str,
    outcome: UnknownAnswer | None,
    always: AllowedFor | None,
) -> None:
    # Checked in the append's own transaction, so that a refusal stores no event.
    def record(appended: Sequence[Appended]) -> None:
        if not any(each.is_new for each in appended):
            return
        _continue(conversation, accepted, runs=accepted)
        if outcome is not None:
            raise NotUnknown("The call waits for approval: its outcome is not unknown.")
        waiting = ToolRun.objects.of(conversation).waiting()
        if call_seq is not None and waiting.values_list("call_seq", flat=True).last() != call_seq:
            raise _other_waits(call_seq)
        if always is not None and accepted:
            allowed_tools.allow(conversation, waiting, always)
        waiting.enter(RunState.APPROVED if accepted else RunState.REJECTED, reason=columns.clean(reason))

    writes.append(conversation, [_decision(conversation, accepted, event_id)], also=record)


def _decide_unknown(
    conversation: ConversationRef,
    asked: ToolRun,
    answer: UnknownAnswer,
    reason: str,
    call_seq: int | None,
    event_id: str,
) -> None:
    """Permit the call to be run again, or store a substitute for its result; the turn goes on in any case."""
    if call_seq not in (None, asked.call_seq):
        raise _other_waits(call_seq)

    accepted = answer is not UnknownAnswer.SKIP

    def record(appended: Sequence[Appended]) -> None:
        _continue(conversation, True, runs=accepted)
        state = RunState.APPROVED if answer is UnknownAnswer.RUN_AGAIN else RunState.ANSWERED
        ToolRun.objects.of_call(conversation, asked.call_id).enter(state)

    def append(naming: Naming) -> None:
        decision = _decision(conversation, accepted, event_id)
        told = turn_events.told_outcome(conversation, asked.call_id, answer, reason, naming)
        writes.append(conversation, [decision, *told], also=record)

    turn_events.under_a_free_id(append)


def _decision(conversation: ConversationRef, accepted: bool, event_id: str) -> NewEvent:
    authored = dialects.author(conversation.dialect).decision(accepted=accepted, event_id=event_id)
    return authored.event(event_id)


def _continue(conversation: ConversationRef, accepted: bool, *, runs: bool) -> None:
    """Continue the turn that waits. Raise LoopUnavailable if none does."""
    runs = runs and conversation.dialect is Dialect.V1
    waiting = AgentLoop.objects.of(conversation).undecided()
    status = {"execution_status": ExecutionStatus.RUNNING} if runs else {}
    if not waiting.update(decision=accepted, **status, updated_at=timezone.now()):
        raise LoopUnavailable("No call is waiting for approval.")
    wakeups.asked([conversation.pk])
    if runs:  # a run answers everything in the log, so also what was said while the call waited
        rows = Conversation.objects.filter(pk=conversation.pk)
        seq = reads.newest_input(conversation, after=rows.values_list("asked_through", flat=True).get())
        if seq is not None:
            rows.update(asked_through=seq)


def _other_waits(call_seq: int | None) -> OtherCallWaits:
    return OtherCallWaits(f"A call other than that of event {call_seq} is waiting for approval.")


def carry_out(conversation: ConversationRef) -> Callable[[Sequence[Appended]], None]:
    """Return the hook of the append that answers a decided call; a pause keeps the decision until then."""

    def forget(appended: Sequence[Appended]) -> None:
        if any(each.is_new for each in appended):
            forget_decision(conversation)

    return forget


def forget_decision(conversation: ConversationRef) -> None:
    """Remove the decision: its call is answered, or another call waits."""
    AgentLoop.objects.of(conversation).update(decision=None)
