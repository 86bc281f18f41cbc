"""A damaged log: its reader, its owner and the operator are told where; others are served as before."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from conversations.events import ConversationRef
from conversations.log import writes
from conversations.store import creation
from sessions_app import astore
from tests.conftest import Join, on_sqlite
from tests.support.data.damage import change, flip, other_text, verified
from tests.support.data.events import event, payload

pytestmark = pytest.mark.one_engine

NATIVE = "/api/native/conversations"
PLACES: list[dict[str, Any]] = [
    {"seq": 1, "problem": "changed", "detail": "Event 1 (e1) is not what was stored: its digest differs."}
]


@pytest.fixture
def talk(conversation: ConversationRef) -> ConversationRef:
    """A log of three events."""
    writes.append(conversation, [event(event_id=f"e{number}") for number in range(3)])
    return conversation


@pytest.fixture
def other(alice: User) -> ConversationRef:
    """Another log, which is whole."""
    other = creation.create(alice, conversation_id="other")
    writes.append(other, [event()])
    return other


def damage(talk: ConversationRef) -> None:
    """Change an event, and have that found."""
    change(talk, 1, payload=other_text(payload()))
    verified()


async def test_the_conversation_and_its_events_say_where_they_are_damaged(
    rest: httpx.AsyncClient, talk: ConversationRef, other: ConversationRef
) -> None:
    addresses = [
        f"/api/native/conversations/{name}{rest}" for name in ("talk", "other") for rest in ("", "/events")
    ]
    before = [(await rest.get(address)).json() for address in addresses]
    await astore.call(damage, talk)
    after = [(await rest.get(address)).json() for address in addresses]
    assert [each.get("damage") for each in before] == [None] * 4
    assert [each.get("damage") for each in after] == [PLACES, PLACES, None, None]
    assert after[3] == before[3]
    listed = (await rest.get(NATIVE)).json()["conversations"]
    assert {each["id"]: each["damage"] for each in listed} == {"talk": PLACES, "other": None}


async def test_a_socket_is_told_when_damage_is_found_and_when_it_joins(
    join: Join, talk: ConversationRef
) -> None:
    client = await join(talk)
    assert (await client.until("hello"))["conversation"]["damage"] is None
    await astore.call(damage, talk)
    assert (await client.until("conversation"))["changes"]["damage"] == PLACES
    later = await join(talk)
    assert (await later.until("hello"))["conversation"]["damage"] == PLACES


@on_sqlite
async def test_a_byte_that_is_no_text_leaves_the_rest_readable(
    rest: httpx.AsyncClient, talk: ConversationRef, other: ConversationRef
) -> None:
    await astore.call(flip, talk, 1)
    answer = await rest.get(f"{NATIVE}/talk/events")
    assert answer.status_code == 200
    assert [each["seq"] for each in answer.json()["events"]] == [0, 1, 2]
    await astore.call(verified)
    assert (await rest.get(f"{NATIVE}/talk")).json()["damage"] == PLACES
    assert (await rest.get(f"{NATIVE}/other/events")).status_code == 200


@on_sqlite
@pytest.mark.parametrize("column", ["payload", "text", "event_id"])
def test_the_page_shows_what_is_left_of_an_event_with_a_byte_that_is_no_text(
    alice: User, talk: ConversationRef, column: str
) -> None:
    flip(talk, 1, column)
    browser = Browser(headers={"host": "localhost"})
    assert browser.get("/c/talk").status_code == 200
    verified()
    assert browser.get("/c/talk").status_code == 200


@pytest.mark.parametrize("stored", [other_text(payload()), "{", "[]", ""])
def test_the_page_says_where_the_conversation_is_damaged(
    alice: User, talk: ConversationRef, other: ConversationRef, stored: str
) -> None:
    browser = Browser(headers={"host": "localhost"})
    change(talk, 1, payload=stored)
    assert b"is damaged" not in browser.get("/c/talk").content
    verified()
    page = browser.get("/c/talk")
    assert page.status_code == 200
    assert "Part of this conversation is damaged." in page.text
    assert '<a href="/c/talk?around=1#e1"><bdi>Event 1 (e1) is not what was stored' in page.text
    assert "is damaged" not in browser.get("/c/other").text


def test_reading_costs_no_more_statements_than_before(alice: User, talk: ConversationRef) -> None:
    browser = Browser(headers={"host": "localhost"})
    browser.get("/c/talk")

    def counted() -> int:
        with CaptureQueriesContext(connection) as captured:
            browser.get("/c/talk")
            browser.get("/api/native/conversations/talk/events")
        return len(captured)

    before = counted()
    damage(talk)
    assert counted() == before


@pytest.fixture
def boss(accounts: None, database: None) -> Browser:
    """A superuser's browser."""
    browser = Browser(headers={"host": "localhost"})
    browser.force_login(User.objects.create_superuser("boss", password="boss's password"))
    return browser


def test_the_operator_is_told_on_the_first_page_and_finds_the_place(
    boss: Browser, talk: ConversationRef
) -> None:
    at, detail = "/admin/conversations/verificationfinding/", PLACES[0]["detail"]
    assert "damaged" not in boss.get("/admin/").text
    damage(talk)
    assert "The store is damaged in 1 place." in boss.get("/admin/").text
    assert detail in boss.get(at).text
    assert detail in boss.get(f"{at}?conversation=talk").text
    assert detail not in boss.get(f"{at}?problem=missing").text
    runs = boss.get("/admin/conversations/verificationrun/").text
    assert "1 conversation, 3 events" in runs
    assert "damaged" in runs


def test_strangers_are_told_nothing(accounts: None, bob: User, talk: ConversationRef) -> None:
    damage(talk)
    browser = Browser(headers={"host": "localhost"})
    browser.force_login(bob)
    assert browser.get("/c/talk").status_code == 404
    assert "e1" not in browser.get("/api/native/conversations/talk").text
