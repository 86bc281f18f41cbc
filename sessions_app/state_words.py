"""The states of a conversation's agent in words: the same on every page and in the admin."""

from __future__ import annotations

from sessions_app.models import ExecutionStatus, LoopEnd, LoopStatus

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
"""For staff, who look at the agents of others."""

OWNER_WORDS = {**WORDS, ExecutionStatus.WAITING_FOR_CONFIRMATION.value: "Needs your approval"}
"""For those whose approval it is."""


def state_of(*, status: str, execution_status: str, agent: str, ended_by: str) -> str:
    """Return what the agent of a conversation is doing, as one of the keys of WORDS.

    The arguments are the columns of its loop; `agent` is empty where none was ever started. What a turn has
    come to, or waits for, stays so when the loop is gone.
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
