"""What a conversation's page says of calls that nothing has answered."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import NewEvent
from conversations.log import writes
from conversations.models import ConversationRef, Version
from conversations.store import creation
from convserver.web.conversations.page import PAGE_EVENTS
from sessions_app import astore
from sessions_app.models import AgentLoop, ExecutionStatus, LoopStatus
from tests.events import event


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
