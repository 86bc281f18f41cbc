"""Thumbs: what a user thinks of an answer, by REST, on its page, in exports and in the admin."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.log import writes
from conversations.models import Conversation, ConversationRef
from conversations.store import purging
from sessions_app import astore
from sessions_app.models import Feedback
from sessions_app.retention import purges
from tests.support.data.events import event, payload

pytestmark = pytest.mark.one_engine
TALK = "/api/native/conversations/talk"


@pytest.fixture
async def answered(conversation: ConversationRef) -> ConversationRef:
    """A conversation with a question and an answer, at 0 and 1."""
    await astore.append(conversation, [event("What is it?"), event(raw=payload("It is so.", source="agent"))])
    return conversation


async def rated(rest: httpx.AsyncClient, polarity: str = "negative", reason: str = "It is not.") -> None:
    answer = await rest.put(f"{TALK}/feedback/1", json={"polarity": polarity, "reason": reason})
    answer.raise_for_status()


async def stored(rest: httpx.AsyncClient) -> list[tuple[int, str, str]]:
    found = (await rest.get(f"{TALK}/feedback")).json()["feedback"]
    return [(each["seq"], each["polarity"], each["reason"]) for each in found]


async def test_an_answer_has_one_rating_which_is_replaced_and_taken_back(
    answered: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await rated(rest)
    await rated(rest)
    assert await stored(rest) == [(1, "negative", "It is not.")]
    await rated(rest, "positive", "")
    assert await stored(rest) == [(1, "positive", "")]
    for _ in range(2):
        assert (await rest.delete(f"{TALK}/feedback/1")).status_code == 204
    assert await stored(rest) == []


async def test_what_is_no_rating_of_an_answer_is_refused_and_not_stored(
    answered: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    good = {"polarity": "positive"}
    for seq, body, status, code in (
        (0, good, 400, "not_an_answer"),
        (7, good, 404, "event_not_found"),
        (10**18 - 1, good, 404, "event_not_found"),
        (1, {}, 400, "invalid"),
        (1, {"polarity": "so-so"}, 400, "invalid"),
        (1, {**good, "reason": "x" * 2001}, 400, "invalid"),
        (1, {**good, "reason": "a\0"}, 400, "invalid"),
    ):
        with subtests.test(seq=seq, body=str(body)[:50]):
            answer = await rest.put(f"{TALK}/feedback/{seq}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await stored(rest) == []


async def test_a_rating_is_exported_with_the_feedback_of_v0_clients(
    answered: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await rated(rest)
    await rest.post("/api/conversations/talk/submit-feedback", json={"polarity": "positive"})
    lines = (await rest.get(f"{TALK}/export?format=jsonl")).text.splitlines()
    told = json.loads(lines[0])["conversation"]["feedback"]
    assert sorted((each["polarity"], each["seq"] or -1, each["reason"]) for each in told) == [
        ("negative", 1, "It is not."),
        ("positive", -1, ""),
    ]


def test_an_answer_is_rated_by_a_form_which_then_shows_the_rating(
    live: None, alice: User, conversation: ConversationRef
) -> None:
    writes.append(conversation, [event("What is it?"), event(raw=payload("It is so.", source="agent"))])
    browser = Browser(headers={"host": "localhost"})

    def shown(address: str) -> str:
        return browser.get(address).content.decode()

    def rows() -> list[tuple[int | None, str, str]]:
        return list(Feedback.objects.values_list("seq", "polarity", "reason"))

    assert re.findall(r'class="thumb[^"]*"[^>]* href="([^"]+)"', shown("/c/talk")) == [
        "/c/talk/feedback?seq=1&amp;polarity=positive",
        "/c/talk/feedback?seq=1&amp;polarity=negative",
    ]
    assert re.search(r'value="negative"[^>]* checked', shown("/c/talk/feedback?seq=1&polarity=negative"))
    said = {"seq": "1", "polarity": "negative", "reason": "It is <b>not</b>."}
    answer = browser.post("/c/talk/feedback", said)
    assert (answer.status_code, answer["location"]) == (302, "/c/talk?around=1#e1")
    assert rows() == [(1, "negative", "It is <b>not</b>.")]
    assert 'class="thumb down" aria-current="true"' in shown("/c/talk")
    assert "It is &lt;b&gt;not&lt;/b&gt;." in shown("/c/talk/feedback?seq=1")
    refused = browser.post("/c/talk/feedback", {"seq": "1", "polarity": "so-so", "reason": "kept"})
    assert (refused.status_code, "kept" in refused.content.decode()) == (400, True)
    assert browser.get("/c/talk/feedback").status_code == 404
    browser.post("/c/talk/feedback", {"seq": "1", "polarity": "none"})
    assert rows() == []


async def test_the_admin_lists_ratings(answered: ConversationRef, rest: httpx.AsyncClient) -> None:
    await rated(rest)
    page = (await rest.get("/admin/sessions_app/feedback/?polarity=negative")).text
    assert "It is not." in page
    assert "It is not." not in (await rest.get("/admin/sessions_app/feedback/?polarity=positive")).text


def test_a_purge_removes_ratings(alice: User, conversation: ConversationRef) -> None:
    writes.append(conversation, [event(raw=payload("It is so.", source="agent"))])
    Feedback.objects.create(conversation_id=conversation.pk, seq=0, polarity="positive", reason="Good.")
    begun = purging.begin(conversation, among=Conversation.objects.all(), requested_by="me", reason="test")
    assert begun is not None
    purges.run(begun.pk)
    assert not Feedback.objects.exists()
