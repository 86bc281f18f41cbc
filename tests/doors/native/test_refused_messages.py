"""Messages that the native door refuses while the agent works: nothing is stored, and the answer says why."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from conversations.events import ConversationRef
from conversations.log import reads, writes
from conversations.log.append import AppendRequest
from conversations.store import creation
from sessions_app import astore
from sessions_app.loops.inputs import receipts, while_working
from sessions_app.loops.inputs.while_working import AgentWorking
from sessions_app.loops.manager import ConversationManager
from sessions_app.models import WhileWorking
from sessions_app.settings import agent_setups, run_options
from tests.conftest import Join
from tests.support.people.scripted_agent import (
    Hooked,
    Stage,
    ask,
    asking,
    hooked,
    manager,
    said,
    stage,
    until_said,
    until_status,
)
from tests.support.people.web_browser import Browser, words

pytestmark = pytest.mark.one_engine

__all__ = ["hooked", "manager", "stage"]

EVENTS = "/api/native/conversations/talk/events"
OPTIONS = "/api/native/conversations/talk/options"
REFUSAL = str(AgentWorking())


def message(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "message", "id": str(uuid4()), "text": text, **members}


@pytest.fixture
def refusing(conversation: ConversationRef, manager: ConversationManager) -> ConversationRef:
    """A conversation that takes no messages while its agent works."""
    run_options.change(conversation, {"while_working": WhileWorking.REJECT})
    return conversation


async def end_of(conversation: ConversationRef) -> int:
    return await astore.call(reads.last_seq, conversation)


async def work(conversation: ConversationRef, stage: Stage) -> None:
    """Let the agent work until it may go on."""
    await ask(conversation, "hold")
    await stage.holding()


async def test_a_message_on_the_socket_is_refused_while_the_agent_works_and_taken_afterwards(
    refusing: ConversationRef, stage: Stage, join: Join
) -> None:
    await work(refusing, stage)
    client = await join(refusing)
    end = await end_of(refusing)
    await client.send(message("more", id="m"))
    error = await client.until("error")
    assert error == {"type": "error", "code": "agent_working", "detail": REFUSAL, "id": "m"}
    assert await end_of(refusing) == end
    stage.go.set()
    await until_said(refusing, "step 1", "step 2")
    await client.send(message("more", id="m"))
    await client.until("ack", id="m")
    await until_said(refusing, "step 1", "step 2", "answer to more")


async def test_a_message_by_rest_is_refused_while_the_agent_works(
    refusing: ConversationRef, stage: Stage, rest: httpx.AsyncClient
) -> None:
    await work(refusing, stage)
    end = await end_of(refusing)
    for _ in range(2):  # the second way is the shorter one
        answer = await rest.post(EVENTS, json=message("more"))
        assert (answer.status_code, answer.json()["code"]) == (409, "agent_working")
        assert answer.json()["detail"] == REFUSAL
    assert await end_of(refusing) == end


async def test_what_is_recorded_is_taken_beside_a_message_that_is_refused(
    refusing: ConversationRef, stage: Stage, rest: httpx.AsyncClient
) -> None:
    await work(refusing, stage)
    note = {"type": "event", "id": "a", "event": {"observation": "run", "content": "noted"}}
    answers = (await rest.post(EVENTS, json=[note, message("more")])).json()
    assert [(each["type"], each.get("code")) for each in answers] == [
        ("ack", None),
        ("error", "agent_working"),
    ]


@pytest.mark.no_second_try
async def test_a_message_that_is_stored_can_be_repeated_while_the_agent_works(
    refusing: ConversationRef, stage: Stage, rest: httpx.AsyncClient
) -> None:
    first = message("hold")
    stored = await rest.post(EVENTS, json=first)
    await stage.holding()
    assert (await rest.post(EVENTS, json=first)).json() == stored.json()


async def test_a_form_keeps_the_text_of_a_message_that_is_refused(
    refusing: ConversationRef, stage: Stage, visitor: Browser
) -> None:
    await work(refusing, stage)
    answer = await visitor.send("/c/talk/messages", {"text": "my long text"}, page="/c/talk")
    assert answer.status_code == 409
    assert "my long text</textarea>" in answer.text
    assert REFUSAL in words(answer)


async def test_a_pending_approval_and_a_pause_refuse_no_message(
    refusing: ConversationRef, rest: httpx.AsyncClient, manager: ConversationManager
) -> None:
    await ask(refusing, "approve")
    await until_status(refusing, "waiting_for_confirmation")
    assert (await rest.post(EVENTS, json=message("and?"))).status_code == 200
    assert await said(refusing) == []
    await manager.close_session(refusing.public_id)
    await manager.pause(refusing)
    assert (await rest.post(EVENTS, json=message("later"))).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/conversations/talk/message", {"message": "more"}),
        ("/agent/api/conversations/talk/events", {"role": "user", "content": "more"}),
    ],
)
async def test_the_doors_of_openhands_refuse_nothing(
    refusing: ConversationRef, stage: Stage, rest: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    await work(refusing, stage)
    assert (await rest.post(path, json=body)).status_code == 200
    stage.go.set()
    await until_said(refusing, "step 1", "step 2", "answer to more")


async def test_another_choice_counts_at_once(
    refusing: ConversationRef, stage: Stage, rest: httpx.AsyncClient
) -> None:
    await work(refusing, stage)
    await rest.patch(OPTIONS, json={"while_working": "queue"})
    assert (await rest.post(EVENTS, json=message("more"))).status_code == 200
    await rest.patch(OPTIONS, json={"while_working": "reject"})
    assert (await rest.post(EVENTS, json=message("and more"))).status_code == 409


async def test_a_fork_refuses_messages_as_its_origin_does(
    refusing: ConversationRef, alice: User, stage: Stage, rest: httpx.AsyncClient
) -> None:
    copy = await astore.call(lambda: agent_setups.fork(alice, refusing))
    await work(copy, stage)
    answer = await rest.post(f"/api/native/conversations/{copy.public_id}/events", json=message("more"))
    assert answer.status_code == 409


@pytest.mark.needs_engine
async def test_a_message_that_waits_for_the_beginning_of_a_turn_is_refused(
    refusing: ConversationRef, stage: Stage, join: Join, hooked: Hooked
) -> None:
    client = await join(refusing)
    beginning = hooked(receipts, "record").hold()  # under the lock of the conversation
    await client.send(message("hold"))
    await beginning.reached()
    await client.send(message("more", id="m"))
    beginning.let_go.set()
    assert (await client.until("error"))["id"] == "m"
    stage.go.set()
    await until_status(refusing, "finished")
    assert stage.asked == [["hold"]]


@pytest.mark.needs_engine
def test_only_a_conversation_that_may_refuse_messages_is_asked(
    conversation: ConversationRef, alice: User
) -> None:
    other = creation.create(alice)
    run_options.change(other, {"while_working": WhileWorking.REJECT})

    def statements(asked: ConversationRef) -> int:
        request = AppendRequest(
            conversation=asked, events=[asking("hello")], refusal=lambda: while_working.refusal(asked)
        )
        with CaptureQueriesContext(connection) as captured:
            writes.append_many([request], wait=True)
        return len(captured)

    plain = AppendRequest(conversation=conversation, events=[asking("hello")])
    with CaptureQueriesContext(connection) as captured:
        writes.append_many([plain], wait=True)
    assert statements(conversation) == len(captured)
    assert statements(other) == len(captured) + 2
