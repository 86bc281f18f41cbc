"""What a conversation's page says of calls that nothing has answered."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations import dialects
from conversations.events import NewEvent
from conversations.log import writes
from conversations.models import ConversationRef, Version
from conversations.store import creation
from convserver.web.conversations.page import PAGE_EVENTS
from sessions_app import astore
from sessions_app.models import AgentLoop, ExecutionStatus, LoopStatus
from tests.support.data.events import event


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """More calls than a page shows, none of which is answered."""
    conversation = creation.create(alice, conversation_id="talk", version=Version.V0)
    writes.append(conversation, [_call(number) for number in range(PAGE_EVENTS + 10)])
    return conversation


def _call(number: int) -> NewEvent:
    call = {"action": "run", "source": "agent", "args": {"command": f"ls {number}"}}
    return event(raw=json.dumps(call))


async def _let_loop_be(conversation: ConversationRef, execution_status: ExecutionStatus) -> None:
    await astore.call(
        AgentLoop.objects.create,
        conversation_id=conversation.pk,
        status=LoopStatus.RUNNING,
        execution_status=execution_status,
    )


async def _said_of_calls(rest: httpx.AsyncClient, query: str) -> set[str]:
    """Return the words of all calls of a stretch."""
    html = (await rest.get(f"/c/talk/events?{query}")).text
    return set(re.findall(r'class="state [a-z]+">([^<]*)<', html))


async def test_calls_at_the_end_of_the_log_run_while_the_agent_works(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await _let_loop_be(talk, ExecutionStatus.RUNNING)
    assert await _said_of_calls(rest, "") == {"Running…"}


async def test_calls_that_are_not_at_the_end_of_the_log_do_not_run(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await _let_loop_be(talk, ExecutionStatus.RUNNING)
    assert await _said_of_calls(rest, "after=-1") == {"No result"}


@pytest.mark.parametrize("status", [None, ExecutionStatus.FINISHED, ExecutionStatus.PAUSED])
async def test_no_call_runs_where_the_agent_does_not_work(
    talk: ConversationRef, rest: httpx.AsyncClient, status: ExecutionStatus | None
) -> None:
    if status is not None:
        await _let_loop_be(talk, status)
    assert await _said_of_calls(rest, "") == {"No result"}


ASKED: dict[str, list[dict[str, Any]]] = {
    Version.V0: [
        {
            "action": "run",
            "source": "agent",
            "args": {"command": "rm -r build", "confirmation_state": "awaiting_confirmation"},
        },
        {"observation": "agent_state_changed", "extras": {"agent_state": "awaiting_user_confirmation"}},
    ],
    Version.V1: [
        {
            "kind": "ActionEvent",
            "source": "agent",
            "tool_name": "terminal",
            "tool_call_id": "call-1",
            "action": {"kind": "TerminalAction", "command": "rm -r build"},
        },
        {
            "kind": "ConversationStateUpdateEvent",
            "key": "execution_status",
            "value": "waiting_for_confirmation",
        },
    ],
}
DECIDED = {True: "Running…", False: "Rejected"}


@pytest.mark.parametrize("version", Version)
async def test_a_decided_call_asks_for_no_approval_before_its_result_comes(
    alice: User, rest: httpx.AsyncClient, version: Version, subtests: pytest.Subtests
) -> None:
    for accepted, words in DECIDED.items():
        with subtests.test(accepted=accepted):
            conversation = await astore.call(creation.create, alice, version=version)
            asked = [event(raw=json.dumps({"timestamp": NOW, **each})) for each in ASKED[version]]
            await astore.append(conversation, asked)
            await _let_loop_be(conversation, ExecutionStatus.WAITING_FOR_CONFIRMATION)
            address = f"/c/{conversation.public_id}"
            assert 'class="state waiting">Needs your approval<' in (await rest.get(f"{address}/events")).text
            await astore.call(_decide, conversation, accepted)
            shown = (await rest.get(address)).text
            assert f">{words}<" in shown
            assert "Needs your approval<" not in shown.partition('id="events"')[2].partition("</article>")[0]
            assert "data-decided" in shown


NOW = "2026-11-29T12:00:00.000001"


def _decide(conversation: ConversationRef, accepted: bool) -> None:
    decision = dialects.author(conversation.dialect).decision(accepted=accepted, event_id="decision")
    writes.append(conversation, [event(raw=decision.payload)])
    AgentLoop.objects.filter(conversation=conversation.pk).update(decision=accepted)
