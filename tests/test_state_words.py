"""What an agent's state is called: the same for the pages and the admin."""

from __future__ import annotations

import pytest

from sessions_app.models import ExecutionStatus, LoopEnd, LoopStatus
from sessions_app.state_words import OWNER_WORDS, WORDS, state_of


@pytest.mark.parametrize(
    ("status", "execution_status", "agent", "ended_by", "words"),
    [
        ("stopped", "idle", "", "", "Not started"),
        ("starting", "idle", "", "", "Starting"),
        ("stopped", "running", "", "", "Running"),
        ("running", "running", "a", "", "Running"),
        ("running", "idle", "a", "", "Idle"),
        ("running", "waiting_for_confirmation", "a", "", "Needs approval"),
        ("stopped", "waiting_for_confirmation", "a", "interrupted", "Needs approval"),
        ("stopped", "paused", "a", "idle", "Paused"),
        ("stopped", "idle", "a", "stopped", "Stopped"),
        ("stopped", "idle", "a", "crowded_out", "Idle"),
        ("stopped", "finished", "a", "stopped", "Finished"),
        ("error", "running", "a", "failed", "Failed"),
        ("stopped", "stuck", "a", "idle", "Stuck"),
    ],
)
def test_a_state_has_one_name(
    status: str, execution_status: str, agent: str, ended_by: str, words: str
) -> None:
    state = state_of(status=status, execution_status=execution_status, agent=agent, ended_by=ended_by)
    assert WORDS[state] == words


def test_every_state_has_words_for_staff_and_for_owners() -> None:
    states = {
        state_of(status=status, execution_status=execution, agent=agent, ended_by=ended)
        for status in LoopStatus
        for execution in ExecutionStatus
        for agent in ("", "a")
        for ended in LoopEnd
    }
    assert states <= WORDS.keys() == OWNER_WORDS.keys()
