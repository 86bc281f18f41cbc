"""The states of a conversation's agent in words: the same on every page and in the admin."""

from __future__ import annotations

from django.db.models import Q

from sessions_app.models import AgentLoop, ExecutionStatus, LoopEnd, LoopStatus

NOT_STARTED = "not_started"

WORDS = {
    NOT_STARTED: "Not started",
    LoopStatus.STARTING.value: "Starting",
    LoopStatus.STOPPED.value: "Stopped",
    ExecutionStatus.IDLE.value: "Idle",
    ExecutionStatus.RUNNING.value: "Running",
    ExecutionStatus.PAUSED.value: "Paused",
    ExecutionStatus.WAITING_FOR_CONFIRMATION.value: "Needs approval",
    ExecutionStatus.FINISHED.value: "Finished",
    ExecutionStatus.ERROR.value: "Failed",
    ExecutionStatus.STUCK.value: "Stuck",
}
"""For staff, who read about other users' agents."""

OWNER_WORDS = {**WORDS, ExecutionStatus.WAITING_FOR_CONFIRMATION.value: "Needs your approval"}
"""For the owner, who has to approve."""

LOOP_WORDS = {
    LoopStatus.STARTING.value: "Starting",
    LoopStatus.RUNNING.value: "Open",
    LoopStatus.STOPPED.value: "Closed",
    LoopStatus.ERROR.value: "Failed",
}
"""The state of the loop itself, for staff: without a loop, an agent may be idle, paused or stopped."""


def state_of(*, status: str, execution_status: str, agent: str, ended_by: str) -> str:
    """Return what the agent of a conversation is doing, as one of the keys of WORDS.

    The arguments are columns of its loop; `agent` is empty if none was ever started. The outcome of a
    turn stays when the loop has ended.
    """
    if status == LoopStatus.ERROR:
        return ExecutionStatus.ERROR.value
    if status == LoopStatus.STARTING and execution_status == ExecutionStatus.IDLE:
        return LoopStatus.STARTING.value
    if status == LoopStatus.STOPPED and execution_status == ExecutionStatus.IDLE:
        if not agent:
            return NOT_STARTED
        if ended_by == LoopEnd.STOPPED:
            return LoopStatus.STOPPED.value
    return execution_status


def state_of_loop(loop: AgentLoop) -> str:
    return state_of(
        status=loop.status,
        execution_status=loop.execution_status,
        agent=loop.agent,
        ended_by=loop.ended_by,
    )


def in_state(state: str) -> Q:
    """Return the condition on the columns of a loop for which `state_of` returns this state."""
    failed = Q(status=LoopStatus.ERROR)
    idle = Q(execution_status=ExecutionStatus.IDLE)
    closed = Q(status=LoopStatus.STOPPED) & idle
    never_started, stopped = Q(agent=""), Q(ended_by=LoopEnd.STOPPED)
    match state:
        case ExecutionStatus.ERROR:
            return failed | Q(execution_status=state)
        case LoopStatus.STARTING:
            return Q(status=state) & idle
        case _ if state == NOT_STARTED:
            return closed & never_started
        case LoopStatus.STOPPED:
            return closed & ~never_started & stopped
        case ExecutionStatus.IDLE:
            return (Q(status=LoopStatus.RUNNING) & idle) | (closed & ~never_started & ~stopped)
    return ~failed & Q(execution_status=state)
