"""What agent servers elsewhere report to the V1 app face: stored once, all of a batch or nothing."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from conversations import provisional_titles
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef
from conversations.store import importing
from sessions_app import astore
from sessions_app.identity import conversation_keys
from sessions_app.loops.manager import ConversationManager
from sessions_app.models import ApiToken
from sessions_app.openhands_v1 import reports
from tests.support.people.scripted_agent import Hooked, hooked, manager, stage
from tests.support.wires.app_face import (
    APP,
    CONVERSATIONS,
    EVENTS,
    HEX,
    ID,
    NONE,
    SANDBOX,
    answered,
    child_of,
    create,
    event,
    reported,
)

pytestmark = pytest.mark.one_engine

__all__ = ["hooked", "manager", "stage"]

HOOKS = f"{APP}/webhooks"
REPORTED = f"{HOOKS}/{SANDBOX}/events/{ID}"


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A V1 conversation of alice's."""
    return create(alice)


async def key_of(conversation: ConversationRef) -> dict[str, str]:
    return {"X-Session-API-Key": await astore.call(conversation_keys.key_of, conversation)}


async def stored(conversation: ConversationRef) -> list[str]:
    return [each["payload"] for each in await astore.call(reads.read_after, conversation, -1)]


# Events


async def test_a_batch_is_stored_in_its_order_with_the_bytes_that_it_came_with(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    texts = [json.dumps(reported("one"), indent=1), json.dumps(reported("two", new_field=[1.0, "é"]))]
    answer = await rest.post(REPORTED, content=f"[ {texts[0]} ,{texts[1]}]")
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    assert await stored(talk) == texts


@pytest.mark.no_second_try
async def test_events_that_are_reported_again_and_in_another_order_are_stored_once(
    talk: ConversationRef, rest: httpx.AsyncClient, chance: random.Random
) -> None:
    events = [reported(f"number {number}") for number in range(20)]
    for _ in range(5):
        chance.shuffle(events)
        for start in range(0, 20, 7):
            answer = await rest.post(REPORTED, json=[*events[start : start + 7], events[start]])
            assert answer.status_code == 200
    found = [json.loads(text)["id"] for text in await stored(talk)]
    assert sorted(found) == sorted(each["id"] for each in events)


@pytest.mark.no_second_try
async def test_the_same_events_reported_at_the_same_time_are_stored_once(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    events = [reported(f"number {number}") for number in range(10)]
    answers = await asyncio.gather(*(rest.post(REPORTED, json=events) for _ in range(4)))
    assert {each.status_code for each in answers} == {200}
    assert len(await stored(talk)) == 10


@pytest.mark.no_second_try
async def test_whoever_reports_other_content_at_the_same_moment_waits_and_is_told_of_success_too(
    talk: ConversationRef, rest: httpx.AsyncClient, hooked: Hooked
) -> None:
    first = reported("first")
    held = hooked(importing, "missing").hold()
    begun = asyncio.create_task(rest.post(REPORTED, json=[first]))
    await held.reached()
    other = asyncio.create_task(rest.post(REPORTED, json=[reported("second", event_id=first["id"])]))
    await asyncio.wait({other}, timeout=0.5)  # all the time that it would need if nothing held it up
    held.let_go.set()
    assert [(await each).status_code for each in (begun, other)] == [200, 200]
    assert [json.loads(text) for text in await stored(talk)] == [first]


async def test_other_content_under_a_stored_id_is_a_success_and_the_first_stays(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    first = reported("first")
    others = [reported("second", event_id=first["id"]), new := reported("new"), {**new, "source": "agent"}]
    for batch in ([first], others):
        assert (await rest.post(REPORTED, json=batch)).status_code == 200
    assert [json.loads(text) for text in await stored(talk)] == [first, new]


@pytest.mark.no_second_try
def test_what_is_stored_already_is_not_read_under_the_lock(talk: ConversationRef) -> None:
    log = [event(f"number {number}") for number in range(5)]
    reports.store_once(talk, log)
    with CaptureQueriesContext(connection) as captured:
        reports.store_once(talk, log)
    statements = [query["sql"] for query in captured]
    begun = next(n for n, each in enumerate(statements) if each.startswith("BEGIN"))
    assert "payload" not in "".join(statements[begun:])


async def test_a_batch_with_one_bad_event_stores_none_of_it(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.post(REPORTED, json=[reported(), {"id": "x", "action": "message", "args": {}}])
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["body", 1])
    assert await stored(talk) == []


async def test_a_batch_that_cannot_be_stored_is_no_success(
    talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(writes, "append", fails)
    assert (await rest.post(REPORTED, json=[reported()])).status_code == 500


async def test_the_whole_state_that_is_told_now_and_then_is_not_stored(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    state = {**reported(), "kind": "ConversationStateUpdateEvent", "key": "full_state", "value": {}}
    assert (await rest.post(REPORTED, json=[state, reported()])).status_code == 200
    assert await answered(rest, f"{EVENTS}/count", conversation_id__eq=ID) == 1


async def test_what_is_reported_asks_no_agent_anything(
    talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await rest.post(REPORTED, json=[reported("hello")])
    row = await astore.call(Conversation.objects.get, pk=talk.pk)
    assert (row.is_unanswered, manager.get_agent_session(ID)) == (False, None)


async def test_more_than_a_thousand_events_are_too_many_and_none_is_fine(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    event = reported()
    assert (await rest.post(REPORTED, json=[event] * 1001)).status_code == 400
    assert (await rest.post(REPORTED, json=[])).status_code == 200


# Conversations


async def test_an_unknown_conversation_is_made_in_the_sandbox_that_reports_it(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for _ in range(2):
        answer = await rest.post(
            f"{HOOKS}/{SANDBOX}/conversations", json={"id": NONE, "title": "Trip", "x": 1}
        )
        assert (answer.status_code, answer.json()) == (200, {"success": True})
    (found,) = await answered(rest, CONVERSATIONS, ids=NONE)
    assert (found["title"], found["sandbox_id"], found["parent_conversation_id"]) == ("Trip", SANDBOX, HEX)
    child = await astore.call(Conversation.objects.get, public_id=NONE)
    assert await astore.call(provisional_titles.is_made, child.pk)
    assert (await rest.post(f"{HOOKS}/{SANDBOX}/events/{NONE}", json=[reported()])).status_code == 200


async def test_a_report_gives_a_title_and_takes_none_and_changes_nothing_else(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    for title in ("first", "second", None):
        body = {"id": child.public_id, "title": title, "created_at": "2030-01-01T00:00:00Z"}
        assert (await rest.post(f"{HOOKS}/{SANDBOX}/conversations", json=body)).status_code == 200
    (found,) = await answered(rest, CONVERSATIONS, ids=child.public_id)
    assert (found["title"], found["parent_conversation_id"]) == ("first", HEX)
    assert not found["created_at"].startswith("2030")


# Keys


@pytest.mark.parametrize(
    "path", [f"{SANDBOX}/events/{ID}", f"events/{ID}", f"{SANDBOX}/conversations", "conversations"]
)
async def test_a_sandboxs_key_speaks_for_it_and_for_no_other(
    path: str, accounts: None, alice: User, bob: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    other = await astore.call(create, alice, NONE)
    bobs = await astore.call(create, bob, "0" * 31 + "1")
    body: Any = {"id": ID} if path.endswith("conversations") else []
    found = [
        (await rest.post(f"{HOOKS}/{path}", json=body, headers=await key_of(each))).status_code
        for each in (talk, other, bobs)
    ]
    nobody = await rest.post(f"{HOOKS}/{path}", json=body, headers={"X-Session-API-Key": "ck_x_y"})
    refused = 404 if path.startswith("events") else 401
    assert found == [200, refused, refused]
    assert nobody.status_code == 401


@pytest.mark.parametrize("sandbox", ["", f"{SANDBOX}/"])
async def test_a_key_speaks_for_its_conversation_and_those_below_and_for_none_above_or_beside(
    sandbox: str, accounts: None, alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    below = await astore.call(child_of, child, alice)
    beside = await astore.call(child_of, talk, alice)
    everyone = (talk, child, below, beside)

    async def reach(key: dict[str, str]) -> list[tuple[int, int]]:
        found = []
        for public_id in (each.public_id for each in everyone):
            told = await rest.post(f"{HOOKS}/{sandbox}events/{public_id}", json=[], headers=key)
            named = await rest.post(f"{HOOKS}/{sandbox}conversations", json={"id": public_id}, headers=key)
            found.append((told.status_code, named.status_code))
        return found

    yes, no = (200, 200), (404, 401)
    assert await reach(await key_of(talk)) == [yes, yes, yes, yes]
    assert await reach(await key_of(child)) == [no, yes, yes, no]
    assert await reach(await key_of(below)) == [no, no, yes, no]


async def test_what_a_sub_conversation_reports_is_made_below_it(
    accounts: None, alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    answer = await rest.post(f"{HOOKS}/conversations", json={"id": NONE}, headers=await key_of(child))
    assert answer.status_code == 200
    made = await astore.call(Conversation.objects.get, public_id=NONE)
    assert made.parent_id == child.pk


async def test_a_strangers_token_reports_nothing_and_learns_nothing(
    accounts: None, bob: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    token = (await astore.call(ApiToken.issue, bob.pk, "laptop"))[1]
    rest.headers["authorization"] = f"Bearer {token}"
    answers = [
        await rest.post(f"{HOOKS}/events/{conversation_id}", json=[reported()])
        for conversation_id in (HEX, NONE)
    ]
    assert [(each.status_code, each.json()) for each in answers] == [
        (404, {"detail": "Conversation not found."})
    ] * 2


async def test_a_key_of_a_conversation_opens_no_other_door_of_this_face(
    accounts: None, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.get(f"{CONVERSATIONS}/search", headers=await key_of(talk))
    assert answer.status_code == 401


async def test_no_secret_is_told(rest: httpx.AsyncClient) -> None:
    answer = await rest.get(f"{HOOKS}/secrets", headers={"X-Access-Token": "x.y.z"})
    assert (answer.status_code, answer.json()) == (401, {"detail": "Unauthorized"})
