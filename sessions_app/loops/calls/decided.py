"""The user's decisions about the open calls of a turn that continues."""

from __future__ import annotations

from conversations.log import reads
from conversations.models import ConversationRef
from sessions_app.agents.base import Decision, ToolCall
from sessions_app.models import RunState, ToolRun


def decisions_of(conversation: ConversationRef, turn_id: str) -> list[Decision]:
    """Return what the user decided, in the order of the calls."""
    runs = {run.call_id: run for run in ToolRun.objects.of(conversation)}
    found = []
    for call in reads.open_calls(conversation, turn_id):
        run = runs.get(call["id"])
        if run is not None and run.state in (RunState.APPROVED, RunState.REJECTED):
            accepted = run.state == RunState.APPROVED
            found.append(Decision(call=ToolCall.of(call), accepted=accepted, reason=run.reason))
    return found
