"""The user's decisions about tool calls that wait for approval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

from django.utils import timezone

from conversations import dialects
from conversations.dialects import columns
from conversations.events import Appended, Dialect
from conversations.exceptions import LoopUnavailable
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef
from sessions_app.loops import leases, turn_events
from sessions_app.models import AgentLoop, ExecutionStatus


class OtherCallWaits(LoopUnavailable):
    """Another call waits than the decision is about; nothing was decided."""

    code = "conflict"


def decide(
    conversation: ConversationRef,
    accepted: bool,
    reason: str,
    *,
    call_seq: int | None = None,
    event_id: str | None = None,
) -> None:
    """Store and announce the decision about the waiting call. Raise LoopUnavailable if none waits.

    With `call_seq` it is about that call only: raise OtherCallWaits if another one waits. An approval
    continues the run of a V1 conversation, which also answers messages that arrived meanwhile. Repeated
    under the same `event_id` it changes nothing: another call may wait by now.
    """
    record_decision(conversation, accepted, reason, call_seq=call_seq, event_id=event_id)
    leases.announce(conversation)


def record_decision(
    conversation: ConversationRef,
    accepted: bool,
    reason: str,
    *,
    call_seq: int | None = None,
    event_id: str | None = None,
) -> None:
    """Do what `decide` does in the caller's transaction; the caller announces it."""
    event_id = event_id or str(uuid4())
    authored = dialects.author(conversation.dialect).decision(accepted=accepted, event_id=event_id)
    runs = accepted and conversation.dialect is Dialect.V1

    def record(appended: Sequence[Appended]) -> None:
        if not any(each.is_new for each in appended):
            return
        waiting = AgentLoop.objects.of(conversation).undecided()
        decision = {"decision": accepted, "decision_reason": columns.clean(reason)}
        goes_on = {"execution_status": ExecutionStatus.RUNNING} if runs else {}
        if not waiting.update(**decision, **goes_on, updated_at=timezone.now()):
            raise LoopUnavailable("No call is waiting for approval.")
        if call_seq is not None:
            _require_waiting(conversation, call_seq)
        if runs:
            _ask_for_what_was_said(conversation)

    writes.append(conversation, [turn_events.new_event(authored, event_id)], also=record)


def _require_waiting(conversation: ConversationRef, call_seq: int) -> None:
    turn_id = AgentLoop.objects.of(conversation).values_list("turn_id", flat=True).get()
    calls = reads.open_calls(conversation, turn_id) if turn_id is not None else []
    if not calls or calls[-1]["seq"] != call_seq:
        raise OtherCallWaits(f"A call other than that of event {call_seq} is waiting for approval.")


def _ask_for_what_was_said(conversation: ConversationRef) -> None:
    rows = Conversation.objects.filter(pk=conversation.pk)
    seq = reads.newest_input(conversation, after=rows.values_list("asked_through", flat=True).get())
    if seq is not None:
        rows.update(asked_through=seq)


def carry_out(conversation: ConversationRef) -> Callable[[Sequence[Appended]], None]:
    """Return what the append that answers a decided call does besides: until then a pause keeps it."""

    def forget(appended: Sequence[Appended]) -> None:
        if any(each.is_new for each in appended):
            forget_decision(conversation)

    return forget


def forget_decision(conversation: ConversationRef) -> None:
    """Remove the decision: its call is carried out, or another call waits."""
    AgentLoop.objects.of(conversation).update(decision=None, decision_reason="")
