"""What an agent's state is called: the same for the pages and the admin."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import QuerySet

import convserver
from conversations.models import Conversation
from conversations.store import creation
from sessions_app.live.state_words import (
    NOT_STARTED,
    OWNER_WORDS,
    WORDS,
    in_state,
    state_of,
    state_of_loop,
)
from sessions_app.live.status import shown_in
from sessions_app.models import AgentLoop, ExecutionStatus, LoopEnd, LoopStatus

PAGE_WORDS = Path(convserver.__file__).parent / "static" / "web" / "agent_status.js"


def test_a_state_has_one_name(subtests: pytest.Subtests) -> None:
    for status, execution_status, agent, ended_by, words in [
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
    ]:
        with subtests.test(
            status=status, execution_status=execution_status, agent=agent, ended_by=ended_by, words=words
        ):
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


def test_a_loop_is_found_by_the_state_that_it_is_shown_in_and_by_no_other(alice: User) -> None:
    never = creation.create(alice)
    for status, execution, agent, ended in product(LoopStatus, ExecutionStatus, ("", "a"), ["", *LoopEnd]):
        AgentLoop.objects.create(
            conversation_id=creation.create(alice).pk,
            status=status,
            execution_status=execution,
            agent=agent,
            ended_by=ended,
        )
    by_state = {
        state: {loop.pk for loop in AgentLoop.objects.all() if state_of_loop(loop) == state}
        for state in WORDS
    }
    assert {state: _pks(AgentLoop.objects.filter(in_state(state))) for state in WORDS} == by_state
    by_state[NOT_STARTED].add(never.pk)
    assert {state: _pks(shown_in(Conversation.objects.all(), state)) for state in WORDS} == by_state


def _pks(rows: QuerySet[Any]) -> set[int]:
    return set(rows.values_list("pk", flat=True))


def test_the_page_of_a_conversation_calls_its_states_as_the_list_does() -> None:
    script = PAGE_WORDS.read_text(encoding="utf-8")
    words = {each.removesuffix("…") for each in re.findall(r'words: "([^"]*)"', script)}
    on_their_way, gone = {"Pausing", "Stopping", "Continuing"}, {"Deleted", "Unavailable"}
    assert words == set(OWNER_WORDS.values()) | on_their_way | gone
