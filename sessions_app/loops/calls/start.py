"""The start of a tool call: a commit between the call's and its result's."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction

from conversations.dialects import columns
from conversations.events import ConversationRef, EventEnvelope, Kind
from conversations.exceptions import ConversationError
from conversations.log import reads
from sessions_app.agents.base import ToolCall
from sessions_app.loops import leases
from sessions_app.models import AgentLoop, RunState, ToolRun, digest_of, idempotency_key


class CallRefused(ConversationError):
    """The call must not be run: it was started before, was not approved, or is not the approved one."""

    code = "call_refused"


_REFUSALS = {
    RunState.WAITING: "it waits for approval",
    RunState.REJECTED: "it was rejected",
    RunState.STARTED: "it was started before",
    RunState.UNKNOWN: "it was started before, and its outcome is unknown",
    RunState.ANSWERED: "it has a result",
}


def start(conversation: ConversationRef, epoch: int, turn_id: str, call: ToolCall, *, attempt: str) -> str:
    """Record that the loop of `epoch` starts a call of its turn, and return the call's idempotency key.

    Repeated with the same `attempt` it changes nothing. Raise CallRefused if the call must not be run, and
    Fenced.
    """
    with transaction.atomic():
        leases.locked_by(conversation, epoch)
        if not AgentLoop.objects.of(conversation).filter(turn_id=turn_id).exists():
            raise CallRefused(_refused(call, "its turn is over"))
        run = ToolRun.objects.of_call(conversation, call.event_id).first()
        if run is None:
            run = _new_run(conversation, turn_id, call)
        elif run.state == RunState.STARTED and run.attempt == attempt:
            return run.key
        elif run.state != RunState.APPROVED:
            raise CallRefused(_refused(call, _REFUSALS[RunState(run.state)]))
        elif run.digest != digest_of(call.name, call.arguments):  # an approval is for these arguments only
            raise CallRefused(_refused(call, "it is not what was approved"))
        run.state, run.epoch, run.attempt = RunState.STARTED, epoch, attempt
        run.save()
    return run.key


def _new_run(conversation: ConversationRef, turn_id: str, call: ToolCall) -> ToolRun:
    for event in reads.read_some(conversation, event_ids=[call.event_id]):
        if event["turn"] == turn_id and event["kind"] == Kind.TOOL_CALL:
            return run_of(conversation, event, RunState.STARTED)
    raise CallRefused(_refused(call, "the turn has not stored it"))


def wait_for_approval(conversation: ConversationRef, sources: Mapping[str, str | None]) -> None:
    """Record that newly stored calls wait for approval, in the transaction that stores them.

    `sources` are what offers their tools, by the calls' ids.
    """
    runs = []
    for event in reads.read_some(conversation, event_ids=list(sources)):
        runs.append(run_of(conversation, event, RunState.WAITING))
        runs[-1].source = sources[event["id"]]
    ToolRun.objects.bulk_create(runs)


def next_unknown(conversation: ConversationRef) -> EventEnvelope | None:
    """Return the first call whose outcome is unknown, if there is one."""
    run = ToolRun.objects.of(conversation).unknown().first()
    return None if run is None else reads.read_some(conversation, event_ids=[run.call_id])[0]


def run_of(conversation: ConversationRef, event: EventEnvelope, state: RunState) -> ToolRun:
    """Return a new run of a stored call, not saved yet."""
    call = ToolCall.of(event)
    return ToolRun(
        conversation_id=conversation.pk,
        turn_id=event["turn"] or "",
        call_id=call.event_id,
        call_seq=call.seq,
        tool_call_id=call.tool_call_id,
        name=columns.clean(call.name),
        digest=digest_of(call.name, call.arguments),
        state=state,
        key=idempotency_key(conversation, event["id"]),
    )


def _refused(call: ToolCall, why: str) -> str:
    return f"The call of {call.name} was not run: {why}."
