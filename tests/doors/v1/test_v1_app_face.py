"""The app face of the V1 wire: who may do what, by which credentials, and what is malformed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.events import ConversationRef
from conversations.store import deletion
from sessions_app import astore
from sessions_app.models import ApiToken
from sessions_app.openhands_v1 import sandboxes
from tests.support.people.pairs import Pair, new_pair
from tests.support.wires import app_face
from tests.support.wires.app_face import (
    APP,
    CONVERSATIONS,
    EVENTS,
    HEX,
    ID,
    ROUTES,
    SANDBOXES,
    STARTS,
    Route,
    create,
)
from tests.support.wires.v0 import Problem

pytestmark = pytest.mark.one_engine

MAKING = (CONVERSATIONS, f"{CONVERSATIONS}/stream-start")
"""Where something new is made each time."""


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A V1 conversation of alice's."""
    return create(alice)


@pytest.fixture
def tokens(alice: User, bob: User) -> dict[str, str]:
    return {
        "owner": ApiToken.issue(alice.pk, "laptop")[1],
        "stranger": ApiToken.issue(bob.pk, "laptop")[1],
    }


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def ask(
    rest: httpx.AsyncClient, route: Route, *, headers: dict[str, str] | None = None
) -> httpx.Response:
    return await rest.request(route.method, route.path, json=route.body, headers=headers or {})


# Rights


def with_own(route: Route) -> tuple[Route, ConversationRef, Pair]:
    """Return the route for a conversation that no other row has, and whose it is."""
    pair, name = new_pair(), uuid4()
    talk = create(pair.owner, name.hex)
    path = route.path.replace(ID, str(name)).replace(app_face.SANDBOX, str(sandboxes.id_of(name.hex)))
    body = {**route.body, "id": str(name)} if route.body == {"id": ID} else route.body
    return replace(route, path=path, body=body), talk, pair


async def test_each_operation_answers_its_owner_a_stranger_and_nobody_as_it_should(
    accounts: None, alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for route in ROUTES:
        with subtests.test(str(route)):
            own, _, pair = await astore.call(with_own, route)
            anonymous = await ask(rest, own)
            stranger, owner = [
                await ask(rest, own, headers=bearer(pair.tokens[who])) for who in ("stranger", "owner")
            ]
            statuses = [each.status_code for each in (anonymous, stranger, owner)]
            assert statuses == [route.anonymous, route.stranger, route.owner], (stranger.text, owner.text)


async def test_a_stranger_is_answered_as_if_nothing_was_there(
    accounts: None, alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for route in (each for each in ROUTES if each.path not in MAKING):
        with subtests.test(str(route)):
            own, talk, pair = await astore.call(with_own, route)
            headers = bearer(pair.tokens["stranger"])
            there = await ask(rest, own, headers=headers)
            await astore.call(deletion.soft_delete, talk)
            gone = await ask(rest, own, headers=headers)
            assert (there.status_code, there.text) == (gone.status_code, gone.text)


@pytest.mark.parametrize("header", ["x-session-api-key", "authorization"])
async def test_both_headers_bring_a_token_or_the_servers_key(
    accounts: None,
    configured: Any,
    talk: ConversationRef,
    tokens: dict[str, str],
    rest: httpx.AsyncClient,
    header: str,
) -> None:
    configured(session_api_key="the-servers-key")
    await astore.call(User.objects.filter(pk=talk.owner_id).update, is_superuser=True)
    for key in (tokens["owner"], "the-servers-key"):
        value = f"Bearer {key}" if header == "authorization" else key
        response = await rest.get(f"{CONVERSATIONS}/count", headers={header: value})
        assert (response.status_code, response.json()) == (200, 1)


async def test_a_key_that_opens_nothing_is_refused_in_the_wires_words(
    accounts: None, rest: httpx.AsyncClient
) -> None:
    response = await rest.get(f"{CONVERSATIONS}/search", headers=bearer("cs_wrong"))
    assert (response.status_code, response.json()) == (401, {"detail": "Unauthorized"})


@pytest.mark.parametrize(("with_token", "status"), [(True, 200), (False, 403)])
def test_a_login_writes_only_with_its_csrf_token(
    accounts: None, alice: User, with_token: bool, status: int
) -> None:
    browser = Browser(enforce_csrf_checks=True, headers={"host": "localhost"})
    browser.force_login(alice)
    browser.cookies["csrftoken"] = "c" * 32
    headers = {"x-csrftoken": "c" * 32} if with_token else {}
    answer = browser.post(CONVERSATIONS, "{}", content_type="application/json", headers=headers)
    assert answer.status_code == status, answer.content


async def test_an_unknown_address_is_not_found_and_none_ends_with_a_slash(rest: httpx.AsyncClient) -> None:
    for path in (
        "/api",
        APP,
        f"{APP}/nowhere",
        f"{CONVERSATIONS}/search/",
        f"{CONVERSATIONS}/{ID}/nowhere",
        f"{SANDBOXES}/",
    ):
        answer = await rest.get(path)
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"}), path


# What is malformed

MALFORMED: list[tuple[str, Problem]] = [
    *(
        (f"{path}/search?limit=0", Problem("greater_than_equal", ["query", "limit"]))
        for path in (CONVERSATIONS, STARTS, EVENTS, SANDBOXES)
    ),
    *(
        (f"{path}/search?limit=101", Problem("less_than_equal", ["query", "limit"]))
        for path in (CONVERSATIONS, STARTS, EVENTS, SANDBOXES)
    ),
    (
        f"{CONVERSATIONS}/search?created_at__gte=yesterday",
        Problem("datetime_from_date_parsing", ["query", "created_at__gte"]),
    ),
    (f"{CONVERSATIONS}/count?title__contains=a%00b", Problem("value_error", ["query", "title__contains"])),
    (CONVERSATIONS, Problem("missing", ["query", "ids"])),
    (STARTS, Problem("missing", ["query", "ids"])),
    (EVENTS, Problem("missing", ["query", "id"])),
    (SANDBOXES, Problem("missing", ["query", "id"])),
    (f"{CONVERSATIONS}?ids={ID}&ids=talk", Problem("uuid_parsing", ["query", "ids", 1])),
    (f"{STARTS}?ids=talk", Problem("uuid_parsing", ["query", "ids", 0])),
    (f"{EVENTS}?id=a%00b", Problem("value_error", ["query", "id", 0])),
    (f"{EVENTS}/count?conversation_id__eq=talk", Problem("uuid_parsing", ["query", "conversation_id__eq"])),
    (f"{EVENTS}/search?sort_order=KIND", Problem("enum", ["query", "sort_order"])),
    (f"{STARTS}/search?sort_order=TITLE", Problem("enum", ["query", "sort_order"])),
    (f"{APP}/conversation/talk/events/count", Problem("uuid_parsing", ["path", "conversation_id"])),
    (f"{CONVERSATIONS}/talk/download", Problem("uuid_parsing", ["path", "conversation_id"])),
]


async def test_what_is_malformed_is_told_where(rest: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for path, problem in MALFORMED:
        with subtests.test(path=path, problem=problem):
            answer = await rest.get(path)
            assert (answer.status_code, answer.json()) == (422, problem)


WRONG_PAGES = [
    f"{path}/search?page_id={page_id}"
    for path in (CONVERSATIONS, STARTS, EVENTS, SANDBOXES)
    for page_id in ("100", "%00", "é", "=", "MTAwLi0x", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5Ljk5")
]


async def test_a_page_id_of_another_making_is_refused(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in WRONG_PAGES:
        with subtests.test(path):
            assert (await rest.get(path)).status_code in (400, 422)


async def test_a_hundred_ids_are_taken_and_one_more_is_too_many(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in [CONVERSATIONS, STARTS, EVENTS, SANDBOXES, f"{APP}/sandbox-specs"]:
        with subtests.test(path):
            name = "ids" if path in (CONVERSATIONS, STARTS) else "id"
            most = await app_face.answered(rest, path, **{name: [ID] * 100})
            assert most == [None] * 100
            assert (await rest.get(path, params={name: [ID] * 101})).status_code == 400


@pytest.mark.parametrize("spelling", [ID, HEX, ID.upper(), HEX.upper()])
async def test_every_spelling_of_an_id_is_known(
    talk: ConversationRef, rest: httpx.AsyncClient, spelling: str
) -> None:
    (found,) = await app_face.answered(rest, CONVERSATIONS, ids=spelling)
    renamed = await rest.patch(f"{CONVERSATIONS}/{spelling}", json={"title": "new"})
    assert found["id"] == renamed.json()["id"] == HEX
    assert await app_face.answered(rest, f"{EVENTS}/count", conversation_id__eq=spelling) == 0


WRONG_BODIES: list[tuple[str, str]] = [
    (CONVERSATIONS, "no JSON"),
    (CONVERSATIONS, "[]"),
    (CONVERSATIONS, ""),
    (CONVERSATIONS, '{"pr_number": ["x"]}'),
    (CONVERSATIONS, '{"pr_number": [99999999999999999999]}'),
    (CONVERSATIONS, '{"title": "a\\u0000b"}'),
    (CONVERSATIONS, '{"trigger": "wind"}'),
    (CONVERSATIONS, '{"conversation_id": "talk"}'),
    (CONVERSATIONS, '{"initial_message": {"role": "assistant", "content": "hi"}}'),
    (CONVERSATIONS, '{"initial_message": {"content": [{"type": "smell"}]}}'),
    (f"{CONVERSATIONS}/{ID}/send-message", '{"content": []}'),
    (
        f"{CONVERSATIONS}/{ID}/send-message",
        '{"role": "assistant", "content": [{"type": "text", "text": "x"}]}',
    ),
    (f"{CONVERSATIONS}/{ID}/send-message", '{"content": [{"type": "smell"}]}'),
    (f"{APP}/conversations/talk/pending-messages", '{"content": [{"type": "text", "text": "x"}]}'),
    (f"{APP}/webhooks/events/{ID}", "{}"),
    (f"{APP}/webhooks/events/{ID}", '[{"id": "x"}]'),
    (f"{APP}/webhooks/events/{ID}", '[{"kind": "PauseEvent"}]'),
    (f"{APP}/webhooks/events/{ID}", "[" * 100_000),
    (f"{APP}/webhooks/conversations", '{"title": "no id"}'),
]


async def test_a_body_of_another_shape_is_refused_and_stores_nothing(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, body in WRONG_BODIES:
        with subtests.test(path=path, body=body):
            answer = await rest.post(path, content=body)
            assert answer.status_code == 422, answer.text
            assert isinstance(answer.json()["detail"], list)
            assert await app_face.answered(rest, f"{EVENTS}/count") == 0
            assert await app_face.answered(rest, f"{STARTS}/count") == 0


async def test_a_message_whose_ignored_members_are_deep_is_taken(rest: httpx.AsyncClient) -> None:
    deep = "[" * 400 + "]" * 400
    part = f'{{"type": "text", "text": "hi", "x": {deep}}}'
    body = f'{{"initial_message": {{"content": [{part}]}}}}'
    answer = await rest.post(CONVERSATIONS, content=body)
    assert answer.status_code == 200, answer.text
