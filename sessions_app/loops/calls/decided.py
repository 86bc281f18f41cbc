"""The user's decisions about the open calls of a turn that continues."""

from __future__ import annotations

from conversations.events import EventEnvelope
from conversations.log import reads
from conversations.models import ConversationRef
from sessions_app.agents.base import Decision, ToolCall
from sessions_app.loops.calls import start as call_starts
from sessions_app.models import RunState, ToolRun


def decisions_of(conversation: ConversationRef, turn_id: str) -> list[Decision]:
    """Return what the user decided, in the order of the calls."""
    runs = {run.call_id: run for run in ToolRun.objects.of(conversation)}
    found = []
    for call in reads.open_calls(conversation, turn_id):
        run = runs.get(call["id"])
        if run is not None and run.state in (RunState.APPROVED, RunState.REJECTED):
            accepted = run.state == RunState.APPROVED
            found.append(Decision(call=_tool_call(call), accepted=accepted, reason=run.reason))
    return found


def _tool_call(event: EventEnvelope) -> ToolCall:
    name, arguments = call_starts.called(event)
    return ToolCall(
        name=name,
        arguments=arguments,
        tool_call_id=event["tool_call_id"] or "",
        event_id=event["id"],
        seq=event["seq"],
    )
