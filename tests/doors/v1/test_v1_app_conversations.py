"""Conversations of the V1 app face: lists that lose nobody, what is shown, and what is done with one."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation, deletion
from sessions_app import astore
from sessions_app.identity import conversation_keys
from sessions_app.loops.manager import ConversationManager
from sessions_app.models import ApiToken
from sessions_app.openhands_v1 import archive as zipped
from sessions_app.openhands_v1 import sandboxes
from tests.support.data import events
from tests.support.people.scripted_agent import manager, stage, until_said
from tests.support.wires import app_face
from tests.support.wires.app_face import (
    APP,
    CONVERSATIONS,
    EVENTS,
    HEX,
    ID,
    SANDBOX,
    all_ids,
    answered,
    child_of,
    cost,
    create,
    repeated,
    said,
)
from tests.support.wires.v0 import MOMENT, Matching

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

SEARCH = f"{CONVERSATIONS}/search"
COUNT = f"{CONVERSATIONS}/count"
ONE = f"{CONVERSATIONS}/{ID}"
START = datetime(2025, 11, 1, tzinfo=UTC)


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A V1 conversation of alice's."""
    return create(alice)


def fill(owner: User, count: int, **columns: Any) -> list[Conversation]:
    """Store many V1 conversations, two of which were always created at the same moment."""
    rows = [
        Conversation(
            public_id=uuid4().hex,
            owner=owner,
            created_at=START + timedelta(seconds=number // 2),
            **{"version": Version.V1, **columns},
        )
        for number in range(count)
    ]
    return Conversation.objects.bulk_create(rows)


def app_conversation(conversation_id: str = HEX, **members: Any) -> dict[str, Any]:
    """Return a conversation that nobody has started, as local mode shows it."""
    return {
        "id": conversation_id,
        "created_by_user_id": None,
        "sandbox_id": SANDBOX,
        "selected_repository": None,
        "selected_branch": None,
        "git_provider": None,
        "title": None,
        "trigger": None,
        "pr_number": [],
        "llm_model": None,
        "metrics": None,
        "parent_conversation_id": None,
        "sub_conversation_ids": [],
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "sandbox_status": "RUNNING",
        "execution_status": "idle",
        "conversation_url": f"http://localhost/api/conversations/{conversation_id}",
        "session_api_key": None,
        **members,
    }


# What is shown


async def test_a_conversation_is_shown_whole_and_the_same_by_search_and_by_its_id(
    alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(
        create,
        alice,
        title="Trip",
        repository="owner/name",
        branch="main",
        provider="github",
        trigger="gui",
        pr_number=[7, 8],
        llm_model="openai/gpt-x",
        accumulated_cost=0.5,
        prompt_tokens=10,
        completion_tokens=2,
    )
    (found,) = await answered(rest, CONVERSATIONS, ids=ID)
    metrics = found["metrics"]
    assert found == app_conversation(
        title="Trip",
        selected_repository="owner/name",
        selected_branch="main",
        git_provider="github",
        trigger="gui",
        pr_number=[7, 8],
        llm_model="openai/gpt-x",
        metrics=metrics,
    )
    assert (metrics["model_name"], metrics["accumulated_cost"]) == ("openai/gpt-x", 0.5)
    assert metrics["accumulated_token_usage"]["prompt_tokens"] == 10
    assert (await answered(rest, SEARCH))["items"] == [found]


async def test_an_untitled_conversation_has_no_title_here_and_the_default_one_in_the_v0_list(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    (found,) = await answered(rest, CONVERSATIONS, ids=ID)
    info = await answered(rest, f"/api/conversations/{ID}")
    assert (found["title"], info["title"]) == (None, f"Conversation {SANDBOX}")


async def test_in_accounts_mode_a_conversation_tells_whose_it_is_and_the_key_that_opens_it(
    accounts: None, alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    token = (await astore.call(ApiToken.issue, alice.pk, "laptop"))[1]
    rest.headers["authorization"] = f"Bearer {token}"
    (found,) = await answered(rest, CONVERSATIONS, ids=ID)
    assert found["created_by_user_id"] == str(alice.pk)
    assert await astore.call(conversation_keys.opened_by, found["session_api_key"]) == talk
    info = await answered(rest, f"/api/conversations/{ID}")
    assert (info["url"], info["session_api_key"]) == (found["conversation_url"], found["session_api_key"])


async def test_the_address_of_a_conversation_is_at_the_host_that_was_asked(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    response = await rest.get(CONVERSATIONS, params={"ids": ID}, headers={"host": "127.0.0.1:8123"})
    assert response.json()[0]["conversation_url"] == f"http://127.0.0.1:8123/api/conversations/{HEX}"


async def test_only_conversations_that_the_wire_can_name_are_listed_and_counted(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(creation.create, alice, conversation_id=uuid4().hex)
    await astore.call(create, alice, "my-own-name")
    await astore.call(create, alice, "z" * 32)
    assert await all_ids(rest, SEARCH) == [HEX]
    assert await answered(rest, COUNT) == 1


async def test_sub_conversations_are_named_by_their_parent_and_listed_only_when_asked_for(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    children = [(await astore.call(child_of, talk, alice)).public_id for _ in range(3)]
    (parent,) = (await answered(rest, SEARCH))["items"]
    assert parent["sub_conversation_ids"] == children
    listed = await answered(rest, SEARCH, include_sub_conversations="true")
    assert [each["id"] for each in listed["items"]] == [*children[::-1], HEX]
    assert {each["sandbox_id"] for each in listed["items"]} == {SANDBOX}
    assert {each["parent_conversation_id"] for each in listed["items"][:3]} == {HEX}
    counts = [await answered(rest, COUNT), await answered(rest, COUNT, include_sub_conversations="true")]
    assert counts == [1, 4]


async def test_a_sandbox_holds_its_family_and_no_other_conversation(
    alice: User, bob: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    grandchild = await astore.call(child_of, child, alice)
    other, bobs = [await astore.call(create, user, uuid4().hex) for user in (alice, bob)]
    below = await astore.call(sandboxes.id_of, child.public_id)
    for sandbox_id, whole, top in (
        (SANDBOX, {HEX, child.public_id, grandchild.public_id}, {HEX}),
        (await astore.call(sandboxes.id_of, other.public_id), {other.public_id}, {other.public_id}),
        (await astore.call(sandboxes.id_of, bobs.public_id), set(), set()),
        (below, set(), set()),  # the child is in its parent's
        ("no sandbox", set(), set()),
        ("", set(), set()),
    ):
        for query, found in (({"include_sub_conversations": "true"}, whole), ({}, top)):
            asked = {"sandbox_id__eq": sandbox_id, **query}
            listed = await answered(rest, SEARCH, **asked)
            assert {each["id"] for each in listed["items"]} == found
            assert await answered(rest, COUNT, **asked) == len(found)


# Lists


@pytest.mark.no_second_try
@pytest.mark.needs_engine
@pytest.mark.timeout(300)
async def test_every_standing_conversation_comes_once_whatever_the_limit_while_others_come_and_go(
    alice: User, rest: httpx.AsyncClient, chance: random.Random, limits: Sequence[int]
) -> None:
    standing = [row.public_id for row in await astore.call(fill, alice, 120)]
    leaving = await astore.call(fill, alice, 60)
    for limit in limits:
        seen: list[str] = []
        page_id: str | None = None
        while True:
            found, page_id = await app_face.ids(
                rest, SEARCH, limit=limit, **({"page_id": page_id} if page_id else {})
            )
            seen += found
            if page_id is None:
                break
            if chance.random() < 0.1:
                await astore.call(fill, alice, 1, title="came")
                gone = chance.choice(leaving).pk
                await astore.call(Conversation.objects.filter(pk=gone).update, deleted_at=START)
        assert set(standing) <= set(seen)
        assert len(seen) == len(set(seen))


FILTERED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["c", "b", "a"]),
    ({"title__contains": "100%"}, ["a"]),
    ({"title__contains": "_"}, ["b"]),
    ({"title__contains": "ÉTÉ"}, ["c"]),
    ({"title__contains": ""}, ["c", "b", "a"]),
    ({"created_at__gte": "2025-11-02T00:00:00Z"}, ["c", "b"]),
    ({"created_at__gte": "2025-11-02T01:00:00+01:00"}, ["c", "b"]),
    ({"created_at__gte": "2025-11-02T00:00:00"}, ["c", "b"]),
    ({"created_at__lt": "2025-11-02T00:00:00Z"}, ["a"]),
    ({"updated_at__gte": "2025-12-02T00:00:00Z"}, ["c", "b"]),
    ({"updated_at__lt": "2025-12-02T00:00:00Z"}, ["a"]),
    ({"created_at__gte": "2025-11-02T00:00:00Z", "title__contains": "b"}, ["b"]),
    ({"created_at__lt": "0001-01-01T00:00:00Z"}, []),
]


@pytest.mark.needs_engine
async def test_a_filter_holds_for_the_list_and_the_count(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    titles = ["a 100% sure", "b_c", "c été"]
    for day, title in enumerate(titles, start=1):
        created = datetime(2025, 11, day, tzinfo=UTC)
        updated = datetime(2025, 12, day, tzinfo=UTC)
        await astore.call(create, alice, uuid4().hex, title=title, created_at=created, updated_at=updated)
    for query, names in FILTERED:
        with subtests.test(query=query, names=names):
            items = (await answered(rest, SEARCH, **query))["items"]
            assert [item["title"][0] for item in items] == names
            assert await answered(rest, COUNT, **query) == len(names)


async def test_a_batch_keeps_the_order_asked_repeats_what_is_repeated_and_has_null_for_the_rest(
    alice: User, bob: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    other = await astore.call(create, alice, uuid4().hex)
    bobs = await astore.call(create, bob, uuid4().hex)
    gone = await astore.call(create, alice, uuid4().hex)
    v0 = await astore.call(creation.create, alice, conversation_id=uuid4().hex)
    await astore.call(deletion.soft_delete, gone)
    asked = [each.public_id for each in (other, bobs, talk, gone, v0, other)]
    found = await answered(rest, CONVERSATIONS, ids=asked)
    ids = [each and each["id"] for each in found]
    assert ids == [other.public_id, None, HEX, None, None, other.public_id]


@pytest.mark.needs_engine
def test_a_list_costs_the_same_however_long_it_is(alice: User) -> None:
    paths = [f"{SEARCH}?limit=100", COUNT, f"{SEARCH}?limit=100&include_sub_conversations=true"]
    (parent,) = fill(alice, 1)
    fill(alice, 1, parent=parent)
    few = [cost(path) for path in paths]
    fill(alice, 150)
    fill(alice, 50, parent=parent)
    assert all(now <= before for now, before in zip(map(cost, paths), few, strict=True))
    assert max(few) <= 4


@pytest.mark.needs_engine
def test_the_first_page_passes_over_no_conversations_of_the_other_wire(alice: User) -> None:
    fill(alice, 2_000, version=Version.V0)
    fill(alice, 10)
    if connection.vendor == "postgresql":  # SQLite would plan by this for the tests that follow, too
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")  # so that the plan is made for as many as there are
    rows = Conversation.objects.visible_to(alice).known_to_v1().top_level().newest_first()
    assert "conversation_by_version" in rows.values_list("created_at", "pk")[:21].explain()


@pytest.mark.needs_engine
def test_a_batch_costs_the_same_however_many_are_asked_for(alice: User) -> None:
    rows = fill(alice, 100)
    one, all_ = (repeated("ids", [row.public_id for row in some]) for some in (rows[:1], rows))
    assert cost(f"{CONVERSATIONS}?{one}") == cost(f"{CONVERSATIONS}?{all_}") <= 6


# What is done with one


async def test_a_patch_changes_what_it_names_and_nothing_else(alice: User, rest: httpx.AsyncClient) -> None:
    await astore.call(create, alice, title="old", repository="owner/name", branch="main")
    renamed = await rest.patch(ONE, json={"title": " new ", "public": True, "of_tomorrow": 1})
    moved = await rest.patch(ONE, json={"selected_branch": "next", "git_provider": "gitlab"})
    untitled = await rest.patch(ONE, json={"title": None, "selected_repository": None})
    assert [each.status_code for each in (renamed, moved, untitled)] == [200, 200, 200]
    assert renamed.json() == app_conversation(
        title="new", selected_repository="owner/name", selected_branch="main"
    )
    assert moved.json() == app_conversation(
        title="new", selected_repository="owner/name", selected_branch="next", git_provider="gitlab"
    )
    assert untitled.json() == app_conversation(selected_branch="next", git_provider="gitlab")


async def test_a_delete_takes_the_sub_conversations_along_and_leaves_the_parent(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    grandchild = await astore.call(child_of, child, alice)
    answer = await rest.delete(f"{CONVERSATIONS}/{child.public_id}")
    again = await rest.delete(f"{CONVERSATIONS}/{child.public_id}")
    left = await answered(rest, CONVERSATIONS, ids=[HEX, child.public_id, grandchild.public_id])
    assert (answer.status_code, answer.json()) == (200, {"success": True})
    assert (again.status_code, again.json()) == (404, {"detail": "unknown_app_conversation"})
    assert left == [app_conversation(), None, None]


@pytest.mark.needs_engine
@pytest.mark.parametrize("path", [ONE, f"/api/conversations/{ID}"])
async def test_either_door_deletes_a_family_and_stops_its_agents(
    path: str, alice: User, talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    child = await astore.call(child_of, talk, alice)
    for each in (talk, child):
        await manager.maybe_start_agent_loop(each)
    assert (await rest.delete(path)).status_code == 200
    assert [manager.get_agent_session(each.public_id) for each in (talk, child)] == [None, None]
    assert await answered(rest, COUNT, include_sub_conversations="true") == 0
    await astore.call(deletion.restore, child)
    assert await answered(rest, COUNT, include_sub_conversations="true") == 1


async def test_a_family_is_hidden_whole_or_not_at_all(
    alice: User, talk: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await astore.call(child_of, talk, alice)
    hide = deletion.soft_delete

    def fails_for_the_parent(conversation: ConversationRef) -> None:
        if conversation == talk:
            raise RuntimeError("the disk is full")
        hide(conversation)

    monkeypatch.setattr(deletion, "soft_delete", fails_for_the_parent)
    assert (await rest.delete(ONE)).status_code == 500
    assert await answered(rest, COUNT, include_sub_conversations="true") == 2


async def test_a_sent_message_is_answered_also_by_a_stopped_conversation(
    talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await rest.post(f"{APP}/sandboxes/{SANDBOX}/pause")
    answer = await rest.post(f"{ONE}/send-message", json=said("hello"))
    status = Matching("STARTING|RUNNING")
    assert answer.json() == {"success": True, "sandbox_status": status, "message": Matching(".+")}
    await until_said(talk, "answer to hello")


async def test_a_message_that_is_not_to_run_waits(
    talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await rest.post(f"{ONE}/send-message", json={**said("wait"), "run": False})
    row = await astore.call(Conversation.objects.get, pk=talk.pk)
    assert (row.next_seq, row.is_unanswered) == (1, False)


# Messages that come before the conversation is open


async def test_a_pending_message_is_stored_and_answered_under_the_id_that_it_was_given(
    talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    answer = await rest.post(f"{APP}/conversations/{ID}/pending-messages", json=said("hello"))
    assert answer.json() == {"id": Matching(r"[0-9a-f-]{36}"), "queued": True, "position": 1}
    await until_said(talk, "answer to hello")
    (first,) = await answered(rest, f"{APP}/conversation/{ID}/events", id=answer.json()["id"])
    assert first["llm_message"]["content"] == said("hello")["content"]


async def test_a_pending_message_reaches_what_a_start_has_made(
    manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    start = (await rest.post(CONVERSATIONS, json={"conversation_id": ID})).json()
    answer = await rest.post(f"{APP}/conversations/task-{start['id']}/pending-messages", json=said("hi"))
    unknown = await rest.post(f"{APP}/conversations/task-{HEX}/pending-messages", json=said("hi"))
    assert (answer.status_code, unknown.status_code) == (201, 404)
    found = await answered(rest, f"{EVENTS}/search", conversation_id__eq=ID, kind__eq="MessageEvent")
    assert found["items"][0]["id"] == answer.json()["id"]


async def test_a_pending_message_without_parts_is_refused(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.post(f"{APP}/conversations/{ID}/pending-messages", json={"content": []})
    assert answer.status_code == 400


# Download


async def test_a_download_holds_every_event_in_order_as_the_socket_sends_it(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    own = app_face.event("first")
    await astore.append(talk, [own, events.event("of the other wire"), app_face.event(event_id="a/../b")])
    response = await rest.get(f"{ONE}/download")
    archive = ZipFile(io.BytesIO(response.content))
    assert archive.testzip() is None
    meta, *names = archive.namelist()
    assert meta == "meta.json"
    assert json.loads(archive.read(meta)).items() <= app_conversation().items()
    assert names[0] == f"event_000000_{own.event_id}.json"
    assert names[2] == "event_000002_a_.._b.json"
    assert archive.read(names[0]).decode() == own.payload
    shown = (await answered(rest, f"{EVENTS}/search", conversation_id__eq=ID))["items"]
    assert [json.loads(archive.read(name)) for name in names] == shown
    assert response.headers["content-type"] == "application/zip"


async def test_a_long_conversation_is_downloaded_page_by_page_also_when_it_is_stopped(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await rest.post(f"{APP}/sandboxes/{SANDBOX}/pause")
    await astore.append(talk, [app_face.event(f"number {number}") for number in range(1200)])
    pieces = [piece async for piece in zipped.archive(talk, "{}")]
    assert len(pieces) == 4
    assert len(ZipFile(io.BytesIO(b"".join(pieces))).namelist()) == 1201
