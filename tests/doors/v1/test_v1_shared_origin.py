"""One address, two wires: who asks and for what says which answers; and keys of one conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User

from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.identity import conversation_keys
from sessions_app.identity.conversation_keys import key_of
from sessions_app.models import ApiToken
from sessions_app.settings import agent_setups
from sessions_app.storage import attachments
from tests.doors.test_access import bearer, login_cookie
from tests.support.wires.v1 import AGENT, HEX, ID, NONE, SHARED, START, known, said

pytestmark = pytest.mark.one_engine

V0_ONLY = "conversation_id"
"""What V0 calls an id."""


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A V1 conversation of alice's."""
    return agent_setups.create(alice, agent_setups.NewSetup(), conversation_id=HEX)


@pytest.fixture
def other(alice: User) -> ConversationRef:
    """Another one of alice's."""
    return agent_setups.create(alice, agent_setups.NewSetup(), conversation_id=NONE)


@pytest.fixture
def key(talk: ConversationRef) -> dict[str, str]:
    """The headers with the key that opens `talk`."""
    return {"x-session-api-key": key_of(talk)}


# Which wire is meant


@pytest.mark.parametrize(
    ("method", "path", "body", "v0_answer"),
    [
        ("GET", f"{SHARED}/{ID}", None, lambda body: body[V0_ONLY] == HEX),
        ("PATCH", f"{SHARED}/{ID}", {"title": "new"}, lambda body: body is True),
        ("DELETE", f"{SHARED}/{ID}", None, lambda body: body is True),
        ("GET", f"{SHARED}/{ID}/events", None, lambda body: body == {"events": [], "has_more": False}),
        ("GET", SHARED, None, lambda body: [row[V0_ONLY] for row in body["results"]] == [HEX]),
    ],
)
async def test_without_the_key_of_a_conversation_v0_answers_where_both_have_an_address(
    talk: ConversationRef,
    rest: httpx.AsyncClient,
    method: str,
    path: str,
    body: Any,
    v0_answer: Callable[[Any], bool],
) -> None:
    assert v0_answer(known(await rest.request(method, path, json=body)))


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("GET", f"{SHARED}/{ID}", None, lambda body: body["id"] == ID),
        ("PATCH", f"{SHARED}/{ID}", {"title": "new"}, lambda body: body == {"success": True}),
        ("DELETE", f"{SHARED}/{ID}", None, lambda body: body == {"success": True}),
        ("GET", f"{SHARED}/{ID}/events", ["none"], lambda body: body == [None]),
        ("POST", f"{SHARED}/{ID}/events", said("hello"), lambda body: body == {"success": True}),
        ("GET", f"{SHARED}?ids={ID}", None, lambda body: body[0]["id"] == ID),
    ],
)
async def test_with_the_key_of_a_conversation_the_agent_face_answers(
    talk: ConversationRef,
    key: dict[str, str],
    rest: httpx.AsyncClient,
    method: str,
    path: str,
    body: Any,
    answer: Callable[[Any], bool],
) -> None:
    assert answer(known(await rest.request(method, path, json=body, headers=key)))


async def test_ids_in_the_query_are_for_the_agent_face(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    assert known(await rest.get(f"{SHARED}?ids={HEX}"))[0]["id"] == ID


@pytest.mark.parametrize(
    "body", [START, {"workspace": START["workspace"]}, {"agent": START["agent"], "workspace": {}}]
)
async def test_a_body_with_an_agent_or_a_workspace_is_for_the_agent_face(
    rest: httpx.AsyncClient, body: Any
) -> None:
    answer = known(await rest.post(SHARED, json=body), 201, 422)
    assert "id" in answer or answer["detail"][0]["loc"][:2] == ["body", "workspace"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"initial_user_msg": "my \\"agent\\" and the \\"workspace\\""}',
        b'{"initial_user_msg": "agent"}',
    ],
)
async def test_any_other_body_is_for_v0(rest: httpx.AsyncClient, body: bytes) -> None:
    answer = known(await rest.post(SHARED, content=body), 200, 422)
    assert V0_ONLY in answer or answer["detail"][0]["loc"] == ["body"]


async def test_a_body_that_cannot_be_read_is_refused(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for body in [b'{"agent"', b'["agent"]', b'"agent"', b'\xff"agent"', b'{"agent":' * 9000]:
        with subtests.test(body=body):
            known(await rest.post(SHARED, content=body), 400, 422)


async def test_a_body_that_the_framework_would_not_read_is_left_to_v0(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "DATA_UPLOAD_MAX_MEMORY_SIZE", 10)
    known(await rest.post(SHARED, json={"initial_user_msg": "agent"}))


@pytest.mark.parametrize("prefix", [SHARED, "/api/acp/conversations", "/agent/api/acp/conversations"])
async def test_what_v0_has_no_address_for_is_served_on_the_shared_origin(
    talk: ConversationRef, rest: httpx.AsyncClient, prefix: str
) -> None:
    assert known(await rest.get(f"{prefix}/search"))["items"][0]["id"] == ID
    assert known(await rest.get(f"{prefix}/count")) == 1
    assert known(await rest.get(f"{prefix}/{ID}/events/count")) == 0
    assert known(await rest.post(f"{prefix}/{ID}/pause", json={})) == {"success": True}


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/git/changes//workspace/project", []),
        ("/git/diff/workspace/a.py", {"modified": None, "original": None}),
        ("/vscode/url", {"url": None}),
        ("/tools/", []),
    ],
)
async def test_a_frontend_asks_for_a_workspace_on_the_shared_origin(
    alice: User, rest: httpx.AsyncClient, path: str, answer: object
) -> None:
    assert known(await rest.get(f"/api{path}")) == answer


async def test_on_the_alias_for_other_agents_every_address_is_the_agent_faces(
    rest: httpx.AsyncClient,
) -> None:
    started = known(await rest.post("/api/acp/conversations", json=START), 201)
    assert known(await rest.get(f"/api/acp/conversations/{started['id']}")) == started


# Keys of one conversation


async def test_a_key_opens_its_conversation_and_no_other(
    accounts: None,
    talk: ConversationRef,
    other: ConversationRef,
    key: dict[str, str],
    rest: httpx.AsyncClient,
) -> None:
    statuses = [
        (await rest.get(f"{AGENT}/{each}{path}", headers=key)).status_code
        for each in (ID, NONE)
        for path in ("", "/events/search", "/agent_final_response")
    ]
    assert statuses == [200, 200, 200, 404, 404, 404]


async def test_lists_show_a_key_its_conversation_alone(
    accounts: None,
    talk: ConversationRef,
    other: ConversationRef,
    key: dict[str, str],
    rest: httpx.AsyncClient,
) -> None:
    found = known(await rest.get(f"{AGENT}/search", headers=key))["items"]
    many = known(await rest.get(f"{AGENT}?ids={ID}&ids={NONE}", headers=key))
    assert [item["id"] for item in found] == [ID]
    assert [item and item["id"] for item in many] == [ID, None]
    assert known(await rest.get(f"{AGENT}/count", headers=key)) == 1


async def test_a_key_makes_no_other_conversation(
    accounts: None,
    talk: ConversationRef,
    other: ConversationRef,
    key: dict[str, str],
    rest: httpx.AsyncClient,
) -> None:
    bodies: list[dict[str, Any]] = [START, {**START, "conversation_id": NONE}]
    for body in bodies:
        known(await rest.post(AGENT, json=body, headers=key), 403)
    known(await rest.post(f"{AGENT}/{ID}/fork", json={}, headers=key), 403)
    known(await rest.post(AGENT, json={**START, "conversation_id": ID}, headers=key))
    assert await astore.call(Conversation.objects.count) == 2


async def test_a_key_opens_no_other_door(
    accounts: None,
    talk: ConversationRef,
    key: dict[str, str],
    rest: httpx.AsyncClient,
    subtests: pytest.Subtests,
) -> None:
    for path in ["/api/native/conversations", "/api/settings", "/api/conversations/x/start"]:
        with subtests.test(path):
            method = "POST" if path.endswith("start") else "GET"
            assert (await rest.request(method, path, headers=key)).status_code == 401


async def test_a_key_is_void_once_it_is_rotated_or_its_owner_may_not_come_in(
    accounts: None, talk: ConversationRef, alice: User, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    await astore.call(lambda: User.objects.filter(pk=alice.pk).update(is_active=False))
    known(await rest.get(f"{AGENT}/{ID}", headers=key), 401)
    await astore.call(lambda: User.objects.filter(pk=alice.pk).update(is_active=True))
    known(await rest.get(f"{AGENT}/{ID}", headers=key))
    await astore.call(conversation_keys.rotate, talk)
    known(await rest.get(f"{AGENT}/{ID}", headers=key), 401)


@pytest.mark.parametrize("wrong", ["ck_", f"ck_{HEX}_", f"ck_{HEX}_x", "ck_%00_x", "ck_none_x"])
async def test_a_wrong_key_opens_nothing_with_accounts_and_is_ignored_without(
    talk: ConversationRef, rest: httpx.AsyncClient, configured: Callable[..., None], wrong: str
) -> None:
    key = {"x-session-api-key": wrong}
    assert known(await rest.get(f"{AGENT}/{ID}", headers=key))["id"] == ID
    assert known(await rest.get(f"{SHARED}/{ID}", headers=key))[V0_ONLY] == HEX
    configured(session_api_key="the-servers-key")
    known(await rest.get(f"{AGENT}/{ID}", headers=key), 401)


async def test_the_servers_key_a_token_and_a_login_open_all_of_a_users_conversations(
    accounts: None,
    talk: ConversationRef,
    other: ConversationRef,
    alice: User,
    rest: httpx.AsyncClient,
    configured: Callable[..., None],
) -> None:
    configured(session_api_key="the-servers-key")
    token = await astore.call(lambda: ApiToken.issue(alice.pk, "laptop")[1])
    ways = [
        {"x-session-api-key": "the-servers-key"},
        {"x-session-api-key": token},
        bearer(token),
        {"cookie": await astore.call(login_cookie, alice)},
    ]
    counts = [known(await rest.get(f"{AGENT}/count", headers=way)) for way in ways]
    assert counts == [2, 2, 2, 2]


async def test_a_login_changes_nothing_without_its_csrf_token_and_a_key_needs_none(
    accounts: None, talk: ConversationRef, alice: User, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    cookie = {"cookie": await astore.call(login_cookie, alice)}
    known(await rest.post(f"{AGENT}/{ID}/pause", headers=cookie), 403)
    known(await rest.post(f"{AGENT}/{ID}/pause", headers={**cookie, **key}))


@pytest.mark.parametrize("address", ["/api/file/upload/{path}", "/agent/api/file/upload?path={path}"])
async def test_a_file_goes_to_the_conversation_whose_key_is_given(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient, address: str
) -> None:
    path = address.format(path="/workspace/project/notes.txt")
    answer = await rest.post(path, files={"file": ("x", b"\x00bytes")}, headers=key)
    assert known(answer) == {"success": True, "file_size": 6}
    assert await astore.call(attachments.content_of, talk, "notes.txt") == b"\x00bytes"


async def test_a_file_without_the_key_of_a_conversation_is_nobodys(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    known(await rest.post("/api/file/upload/a", files={"file": ("x", b"")}), 404)
    known(await rest.post("/api/file/upload/a", headers=key), 422)


async def test_a_file_from_a_page_that_shows_no_conversation_is_nobodys(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for page in [
        "/",
        f"/conversations/{NONE}",
        f"/conversations/task-{HEX}",
        f"/settings/conversations/{HEX}",
    ]:
        with subtests.test(page):
            headers = {"referer": f"http://localhost{page}"}
            known(await rest.post("/api/file/upload/a", files={"file": ("x", b"")}, headers=headers), 404)


async def test_a_page_gives_no_file_to_a_conversation_of_somebody_else(
    accounts: None, talk: ConversationRef, bob: User, rest: httpx.AsyncClient
) -> None:
    token = await astore.call(lambda: ApiToken.issue(bob.pk, "laptop")[1])
    headers = {"x-session-api-key": token, "referer": f"http://localhost/conversations/{HEX}"}
    known(await rest.post("/api/file/upload/a", files={"file": ("x", b"")}, headers=headers), 404)
