"""A turn that goes on after its process has died, and its unfinished tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from conversations import dialects
from conversations.dialects.file_tool import FILE_TOOL, VIEW
from conversations.events import ConversationRef, EventEnvelope, NewEvent
from conversations.log import reads, writes
from conversations.server_log import ids_of, log_on_commit
from sessions_app.agents import chosen
from sessions_app.agents.llm.tools import clients
from sessions_app.loops import decisions, leases, turn_events
from sessions_app.loops.calls import start
from sessions_app.loops.turn_events import Naming
from sessions_app.models import (
    AgentLoop,
    ExecutionStatus,
    Repair,
    RunOptions,
    RunState,
    ToolRun,
    UnfinishedAnswer,
    UnknownOutcome,
)
from sessions_app.settings import client_tools

# Not endlessly: a turn's own work may be what ends its process.
RECOVERIES_MAX = 3


def may_go_on(conversation: ConversationRef, loop: AgentLoop) -> bool:
    """Return whether another loop can continue the turn that a dead loop has left."""
    if (loop.recoveries or 0) >= RECOVERIES_MAX:
        return False
    return chosen.continues(conversation, loop.turn_agent)


def go_on(conversation: ConversationRef, epoch: int, turn_id: str, *, is_crash: bool = True) -> None:
    """Prepare a turn that a dead loop has left to be continued under its id; an ended turn does not change.

    A crash (`is_crash`) counts as one of RECOVERIES_MAX, a hand-over by its process does not.

    The text of an unfinished answer is kept and marked. Calls that had not been started may be run, and
    repeatable ones again. The outcome of any other call is unknown: the conversation's options decide
    whether the turn waits for the user or the model is told. Raise Fenced.
    """
    with transaction.atomic():
        leases.locked_by(conversation, epoch)
        loops = AgentLoop.objects.of(conversation).filter(turn_id=turn_id)
        loop = loops.first()
        if loop is None:
            return
        states = _prepare_open_calls(conversation, loop)
        turn_events.under_a_free_id(lambda naming: _append(conversation, epoch, turn_id, states, naming))
        UnfinishedAnswer.objects.filter(conversation_id=conversation.pk).delete()  # the log has its text now
        for call_id, state in states.items():
            ToolRun.objects.of_call(conversation, call_id).enter(state)
        recoveries = F("recoveries") + int(is_crash)
        loops.update(recoveries=recoveries, goes_on=True, updated_at=timezone.now())
        if is_crash:
            Repair.note(loop, turn_id, has_ended=False)
        if RunState.UNKNOWN in states.values():
            loops.update(execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION)
            decisions.forget_decision(conversation)  # an earlier one was not about this question
        why = "A turn goes on after a crash" if is_crash else "A turn is handed over"
        log_on_commit(why, **ids_of(conversation), epoch=epoch)
    leases.announce(conversation)


def _prepare_open_calls(conversation: ConversationRef, loop: AgentLoop) -> Mapping[str, RunState]:
    """Create an approved run for each open call that has none.

    Return the new states of these and of the started calls, oldest first.
    """
    runs = {run.call_id: run for run in ToolRun.objects.of(conversation)}
    states = {}
    for call in reads.open_calls(conversation, loop.turn_id or ""):
        run = runs.get(call["id"])
        if run is None:
            start.run_of(conversation, call, RunState.APPROVED).save()
            states[call["id"]] = RunState.APPROVED
        elif run.state == RunState.STARTED:
            states[call["id"]] = _state_of_started(conversation, run, is_view=_is_view(call))
    return states


def _state_of_started(conversation: ConversationRef, run: ToolRun, *, is_view: bool) -> RunState:
    is_repeatable = is_view or run.name in settings.CONFIGURATION.repeatable_tools
    if is_repeatable or _is_clients(conversation, run.name):
        return RunState.APPROVED
    policy = RunOptions.objects.of(conversation).values_list("unknown_outcome", flat=True).first()
    return RunState.ANSWERED if policy == UnknownOutcome.TELL else RunState.UNKNOWN


def _is_view(call: EventEnvelope) -> bool:
    """Return whether a call only shows a file: a repeat has no effect."""
    name, arguments = dialects.called_tool(call)
    return name == FILE_TOOL and arguments.get("command") == VIEW


def _is_clients(conversation: ConversationRef, name: str) -> bool:
    """Return whether the client runs a tool: its event hands the call over, and a repeat has no effect."""
    # One that cannot be offered does not count: a tool server may have another tool of its name.
    offered, _ = clients.offered(client_tools.declared(conversation))
    return name in offered


def _append(
    conversation: ConversationRef,
    epoch: int,
    turn_id: str,
    states: Mapping[str, RunState],
    naming: Naming,
) -> None:
    events = [*turn_events.cut_answer(conversation, turn_id, naming)]
    events += _told(conversation, states, naming)
    writes.append(conversation, events, epoch=epoch)


def _told(conversation: ConversationRef, states: Mapping[str, RunState], naming: Naming) -> list[NewEvent]:
    """Return the events that tell the model of unknown outcomes, or ask the user about the first of them."""
    calls = {call["id"]: call for call in _calls(conversation, list(states))}
    told = [
        turn_events.failed_call(conversation, calls[call_id], turn_events.OUTCOME_UNKNOWN, naming)
        for call_id, state in states.items()
        if state is RunState.ANSWERED
    ]
    asked = [calls[call_id] for call_id, state in states.items() if state is RunState.UNKNOWN]
    # One question at a time: the turn asks about the next one when it goes on.
    return [*told, *(turn_events.asked_outcome(conversation, asked[0]) if asked else [])]


def _calls(conversation: ConversationRef, call_ids: Sequence[str]) -> list[EventEnvelope]:
    return reads.read_some(conversation, event_ids=call_ids) if call_ids else []
