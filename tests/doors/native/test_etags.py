"""Nobody changes a conversation that they have not seen: PATCH with If-Match, at the native door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.conf import settings

from conversations.events import ConversationRef
from conversations.log import writes
from conversations.store import changes
from convserver.api.native import conversations as native
from convserver.api.native import etags
from sessions_app import astore
from sessions_app.loops.inputs import titles
from tests.conftest import once
from tests.support.data.events import event
from tests.support.people.scripted_agent import Hooked, asking, hooked

__all__ = ["hooked"]

NATIVE = "/api/native/conversations"
TALK = f"{NATIVE}/talk"


async def etag(rest: httpx.AsyncClient) -> str:
    return (await rest.get(TALK)).headers["etag"]


@once
async def test_new_events_leave_the_etag_as_it_is(
    rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    before = await etag(rest)
    await astore.call(writes.append, conversation, [event("hello")])
    assert await etag(rest) == before


@once
@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": "a-key"}])
async def test_a_creation_is_answered_with_the_etag_of_what_it_created(
    rest: httpx.AsyncClient, key: dict[str, str]
) -> None:
    body = {"id": "talk", "tags": {"a": "b"}}
    made = [await rest.post(NATIVE, json=body, headers=key) for _ in range(2 if key else 1)]
    assert {answer.headers["etag"] for answer in made} == {await etag(rest)}


async def test_a_title_that_is_made_of_the_first_message_leaves_the_etag_as_it_is(
    rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    before = await etag(rest)
    await astore.call(writes.append, conversation, [asking("hello")])
    await astore.call(titles.set_provisional_title, conversation)
    assert (await rest.get(TALK)).json()["title"] == "hello"
    assert await etag(rest) == before
    await astore.call(titles.keep_provisional_title, conversation)
    assert await etag(rest) == before


@once
async def test_a_title_that_is_chosen_in_place_of_one_that_was_made_changes_the_etag(
    rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    await astore.call(writes.append, conversation, [asking("hello")])
    await astore.call(titles.keep_provisional_title, conversation)
    before = await etag(rest)
    await rest.patch(TALK, json={"title": "Chosen"})
    assert await etag(rest) != before


@once
@pytest.mark.parametrize(
    "change", [{"title": "New"}, {"tags": {"a": "b"}}, {"pinned": True}, {"archived": True}]
)
async def test_a_change_changes_the_etag_and_is_answered_with_the_new_one(
    rest: httpx.AsyncClient, conversation: ConversationRef, change: dict[str, Any]
) -> None:
    before = await etag(rest)
    changed = (await rest.patch(TALK, json=change)).headers["etag"]
    assert before != changed == await etag(rest)


@once
@pytest.mark.parametrize("header", ["{0}", "*", ' "other" , {0}', '{0},W/"weak"'])
async def test_a_conversation_with_one_of_the_etags_is_changed(
    rest: httpx.AsyncClient, conversation: ConversationRef, header: str
) -> None:
    headers = {"If-Match": header.format(await etag(rest))}
    answer = await rest.patch(TALK, json={"title": "New"}, headers=headers)
    assert (answer.status_code, answer.json()["title"]) == (200, "New")


@once
@pytest.mark.parametrize("header", ['"other"', "W/{0}", '"other", W/{0}'])
async def test_a_conversation_with_another_etag_is_not_changed_and_answered_as_it_is(
    rest: httpx.AsyncClient, conversation: ConversationRef, header: str
) -> None:
    headers = {"If-Match": header.format(await etag(rest))}
    answer = await rest.patch(TALK, json={"title": "New", "pinned": True}, headers=headers)
    current = await rest.get(TALK)
    assert (answer.status_code, answer.json()["code"]) == (412, "precondition_failed")
    assert answer.json()["detail"].startswith("Nothing was changed, because")
    assert (answer.json()["conversation"], answer.headers["etag"]) == (
        current.json(),
        current.headers["etag"],
    )
    assert (current.json()["title"], current.json()["pinned"]) == ("Conversation talk", False)


@once
async def test_a_conversation_with_another_etag_is_not_deleted(
    rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    refused = await rest.delete(TALK, headers={"If-Match": '"another"'})
    assert (refused.status_code, refused.json()["code"]) == (412, "precondition_failed")
    deleted = await rest.delete(TALK, headers={"If-Match": await etag(rest)})
    assert (deleted.status_code, (await rest.get(TALK)).status_code) == (204, 404)


@pytest.mark.no_second_try
async def test_a_change_between_the_check_of_an_etag_and_the_deletion_is_not_lost(
    rest: httpx.AsyncClient, conversation: ConversationRef, hooked: Hooked
) -> None:
    headers = {"If-Match": await etag(rest)}
    stopped = hooked(native, "in_loop")
    stopped.after(lambda: changes.retitle(conversation, "Changed"))
    refused = await rest.delete(TALK, headers=headers)
    assert (refused.status_code, refused.json()["conversation"]["title"]) == (412, "Changed")
    assert (await rest.get(TALK)).json()["title"] == "Changed"
    assert (await rest.delete(TALK, headers={"If-Match": refused.headers["etag"]})).status_code == 204


@pytest.mark.no_second_try
async def test_a_change_that_waits_for_a_deletion_with_an_etag_finds_nothing_to_change(
    rest: httpx.AsyncClient, conversation: ConversationRef, hooked: Hooked
) -> None:
    headers = {"If-Match": await etag(rest)}
    deleting, looking = hooked(native, "delete").hold(), hooked(etags, "wanted")
    deleted = asyncio.create_task(rest.delete(TALK, headers=headers))
    await deleting.reached()
    changed = asyncio.create_task(rest.patch(TALK, json={"title": "Second"}, headers=headers))
    await looking.called(1)
    deleting.let_go.set()
    assert ((await deleted).status_code, (await changed).status_code) == (204, 404)


@pytest.mark.one_engine
@once
@pytest.mark.parametrize("header", ["", "unquoted", '"half'])
async def test_a_header_that_is_no_list_of_etags_is_refused(
    rest: httpx.AsyncClient, conversation: ConversationRef, header: str
) -> None:
    answer = await rest.patch(TALK, json={"title": "New"}, headers={"If-Match": header})
    assert (answer.status_code, answer.json()["detail"]) == (
        400,
        "If-Match is a list of ETags in quotes, or *.",
    )


@pytest.mark.no_second_try
async def test_of_two_changes_at_once_with_one_etag_only_one_is_made(
    rest: httpx.AsyncClient, conversation: ConversationRef, hooked: Hooked
) -> None:
    headers = {"If-Match": await etag(rest)}
    writing, looking = hooked(native, "_change").hold(), hooked(etags, "wanted")
    first = asyncio.create_task(rest.patch(TALK, json={"title": "First"}, headers=headers))
    await writing.reached()
    second = asyncio.create_task(rest.patch(TALK, json={"title": "Second"}, headers=headers))
    await looking.called(1)
    writing.let_go.set()
    statuses = (await first).status_code, (await second).status_code
    assert (statuses, (await rest.get(TALK)).json()["title"]) == ((200, 412), "First")


@pytest.mark.one_engine
@once
async def test_a_page_of_another_origin_may_send_an_etag_and_see_one(
    configured: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    rest: httpx.AsyncClient,
    conversation: ConversationRef,
) -> None:
    origin = "https://pages.example"
    configured(permitted_origins=(origin,))
    monkeypatch.setattr(settings, "CORS_ALLOWED_ORIGINS", [origin])
    asked = {
        "origin": origin,
        "access-control-request-method": "PATCH",
        "access-control-request-headers": "if-match",
    }
    allowed = (await rest.options(TALK, headers=asked)).headers["access-control-allow-headers"]
    exposed = (await rest.get(TALK, headers={"origin": origin})).headers["access-control-expose-headers"]
    assert ("if-match" in allowed.split(", "), exposed) == (True, "etag")
