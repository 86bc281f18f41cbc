"""Starts and stops that meet: nobody waits for another's loops, and what was stopped stays so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from conversations.exceptions import LoopUnavailable
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents import chosen
from sessions_app.agents.base import Agent
from sessions_app.loops import manager as manager_module
from sessions_app.loops.manager import ConversationManager
from sessions_app.models import AgentLoop
from tests.support.people.scripted_agent import (
    Stage,
    ask,
    asking,
    ends,
    log,
    loop_of,
    manager,
    row_of,
    said,
    stage,
    until_here,
    until_no_loop,
    until_said,
    until_status,
)

__all__ = ["manager", "stage"]

TALK = "/api/conversations/talk"


@pytest.fixture
def other(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id="other")


@pytest.fixture
async def making_room(
    conversation: ConversationRef,
    other: ConversationRef,
    stage: Stage,
    manager: ConversationManager,
    configured: Callable[..., None],
) -> asyncio.Task[object]:
    """The start of `conversation`, which waits for another loop whose agent does not let go."""
    configured(max_concurrent=1)
    await ask(other, "stubborn")
    await stage.holding()
    await astore.append(conversation, [asking("hello")])
    start = asyncio.create_task(manager.maybe_start_agent_loop(conversation))
    other_loop = manager.get_agent_session("other")
    assert other_loop is not None
    await until_here(lambda: other_loop.is_ending)
    return start


async def test_a_stop_while_the_loop_waits_for_room_is_a_stop(
    making_room: asyncio.Task[object],
    conversation: ConversationRef,
    stage: Stage,
    manager: ConversationManager,
) -> None:
    await manager.close_session(conversation.public_id)
    stage.go.set()
    with pytest.raises(LoopUnavailable, match="stopped before"):
        await making_room
    assert not (await row_of(conversation)).is_unanswered
    assert (manager.get_agent_session("talk"), await said(conversation)) == (None, [])


async def test_a_message_after_such_a_stop_is_answered(
    making_room: asyncio.Task[object],
    conversation: ConversationRef,
    stage: Stage,
    manager: ConversationManager,
) -> None:
    await manager.close_session(conversation.public_id)
    await ask(conversation, "more")
    stage.go.set()
    with pytest.raises(LoopUnavailable):
        await making_room
    await until_said(conversation, "answer to more")


async def test_one_users_start_waits_for_nobody_elses_loops(
    making_room: asyncio.Task[object], bob: User, stage: Stage, manager: ConversationManager
) -> None:
    bobs = await astore.call(creation.create, bob, conversation_id="bobs")
    info = await manager.maybe_start_agent_loop(bobs)
    assert (info.status, making_room.done()) == ("running", False)
    stage.go.set()
    await making_room


async def test_a_start_of_a_loop_that_is_there_wakes_it(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    await astore.append(conversation, [asking("hello")])
    manager.start_soon(conversation)
    await until_said(conversation, "answer to hello")


# An agent that cannot be made


async def test_an_agent_that_cannot_be_made_is_an_error_that_everybody_sees(
    conversation: ConversationRef, manager: ConversationManager, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.BrokenAgent")
    await ask(conversation, "hello")
    loops = AgentLoop.objects.of(conversation).filter(status="error")
    await until_status(conversation, "idle")
    loop = await astore.call(loops.get)
    assert (loop.error, loop.ended_by) == (manager_module.NO_AGENT, "failed")


async def test_once_the_agent_can_be_made_the_conversation_goes_on(
    conversation: ConversationRef, manager: ConversationManager, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.BrokenAgent")
    await astore.append(conversation, [asking("hello")])
    with pytest.raises(LoopUnavailable):
        await manager.maybe_start_agent_loop(conversation)
    configured(agent="tests.support.people.scripted_agent.ScriptedAgent")
    await manager.maybe_start_agent_loop(conversation)
    await until_said(conversation, "answer to hello")
    loop = await loop_of(conversation)
    assert (loop.status, loop.error, loop.ended_by) == ("running", "", "")


async def test_one_conversation_without_an_agent_keeps_the_sweep_from_no_other(
    conversation: ConversationRef,
    other: ConversationRef,
    manager: ConversationManager,
    configured: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager_module, "SWEEP_S", 0.02)
    made = []

    def first_none_then_staged(agent_class: type[Agent], conversation: ConversationRef) -> Agent:
        made.append(1)
        if len(made) == 1:
            raise RuntimeError("not yet")
        return agent_class()

    monkeypatch.setattr(chosen, "made_for", first_none_then_staged)
    for each in (conversation, other):
        await astore.append(each, [asking("hello")])
    await manager.ensure_started()
    await until_said(other, "answer to hello")
    await until_said(conversation, "answer to hello")


async def test_a_state_that_is_stored_is_not_reported_as_failed(
    conversation: ConversationRef, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.BrokenAgent")
    body = {"action": "change_agent_state", "args": {"agent_state": "running"}}
    response = await rest.post(f"{TALK}/events", json=body)
    assert (response.status_code, len(await log(conversation))) == (200, 1)


# Repeated by their keys


@pytest.mark.no_second_try
async def test_a_repeated_decision_decides_about_no_other_call(
    conversation: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient, stage: Stage
) -> None:
    stage.go.set()
    accept = {"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}}
    key = {"Idempotency-Key": "K1"}
    await ask(conversation, "approve this")
    await until_status(conversation, "waiting_for_confirmation")
    assert (await rest.post(f"{TALK}/events", json=accept, headers=key)).status_code == 200
    await until_status(conversation, "finished")
    await ask(conversation, "approve that")
    await until_status(conversation, "waiting_for_confirmation")
    length = len(await log(conversation))
    assert (await rest.post(f"{TALK}/events", json=accept, headers=key)).status_code == 200
    assert len(await log(conversation)) == length
    assert (await loop_of(conversation)).decision is None


@pytest.mark.no_second_try
async def test_a_repeated_stop_stops_no_later_turn(
    conversation: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient, stage: Stage
) -> None:
    stop = {"action": "change_agent_state", "args": {"agent_state": "stopped"}}
    key = {"Idempotency-Key": "S1"}
    await ask(conversation, "hold")
    await stage.holding()
    assert (await rest.post(f"{TALK}/events", json=stop, headers=key)).status_code == 200
    await until_status(conversation, "idle")
    await ask(conversation, "hold")
    await stage.holding()
    assert (await rest.post(f"{TALK}/events", json=stop, headers=key)).status_code == 200
    stage.go.set()
    await until_said(conversation, "step 1", "step 1", "step 2")
    assert len(await ends(conversation)) == 2


# What only looks, or deletes


async def test_a_question_about_what_to_remember_starts_no_loop(
    conversation: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await rest.get(f"{TALK}/remember-prompt", params={"event_id": 0})
    assert (await rest.get(TALK)).json()["status"] == "STOPPED"


async def test_a_deletion_closes_the_loop(
    conversation: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    assert (await rest.delete(TALK)).json() is True
    await until_no_loop(conversation)
    assert (await loop_of(conversation)).ended_by == "stopped"
