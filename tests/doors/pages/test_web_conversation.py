"""The page of a conversation: which stretch of the log an address shows, and what is said by its form."""

from __future__ import annotations

import html
import re
from datetime import date
from itertools import product
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client

from conversations.log import writes
from conversations.models import Conversation, ConversationRef
from conversations.store import creation
from sessions_app import astore
from sessions_app.loops import leases, turns
from sessions_app.models import AgentLoop, ExecutionStatus, ModelUse
from sessions_app.processes import this_process
from tests.support.data.events import event
from tests.support.data.faulty import find_locked
from tests.support.people.scripted_agent import asking
from tests.support.people.web_browser import Browser, words

pytestmark = pytest.mark.one_engine

EVENTS = 60
END = EVENTS - 1
BEYOND = 10**15


STRETCHES: list[tuple[str, tuple[int, int]]] = [
    ("", (10, END)),
    ("?before=5", (0, 4)),
    (f"?before={BEYOND}", (10, END)),
    ("?after=-1", (0, 49)),
    (f"?after={END}", (EVENTS, END)),
    (f"?after={EVENTS}", (EVENTS, END)),
    (f"?after={BEYOND}", (EVENTS, END)),
    ("?around=30", (6, 55)),
    (f"?around={BEYOND}", (35, END)),
    ("?around=x", (10, END)),
    ("?around=-7", (0, 49)),
]


def test_an_address_shows_a_stretch_of_the_log_and_never_more_than_there_is(
    conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    writes.append(conversation, [event(f"word {number}") for number in range(EVENTS)])
    for (asked, shown), page in product(STRETCHES, ["/c/talk", "/c/talk/events"]):
        with subtests.test(asked=asked, shown=shown, page=page):
            text = Client(headers={"host": "localhost"}).get(page + asked).content.decode()
            places = re.search(r'data-first="(-?\d+)" data-last="(-?\d+)" data-last-seq="(-?\d+)"', text)
            assert places is not None
            assert tuple(map(int, places.groups())) == (*shown, END)


def test_an_image_whose_address_nobody_can_send_keeps_the_page_open(conversation: ConversationRef) -> None:
    raw = r'{"action":"message","source":"agent","args":{"content":"hi","image_urls":["https://x/\ud800"]}}'
    writes.append(conversation, [event(raw=raw)])
    answer = Client(headers={"host": "localhost"}).get("/c/talk")
    assert (answer.status_code, "https://x/\ufffd" in answer.content.decode()) == (200, True)


def test_a_turn_that_goes_on_after_a_crash_is_told_of_until_it_is_over(conversation: ConversationRef) -> None:
    def is_told() -> bool:
        text = Client(headers={"host": "localhost"}).get("/c/talk").content.decode()
        return "The server stopped while the agent was working" in text

    epoch = leases.claim(conversation, this_process(), agent="an agent")
    writes.append(conversation, [asking("hello")])
    turns.begin_turn(conversation, epoch)
    rows = AgentLoop.objects.of(conversation)
    assert not is_told()
    rows.update(recoveries=1)
    assert is_told()
    rows.update(turn_id=None, execution_status=ExecutionStatus.FINISHED)
    assert not is_told()


# The form


SAID = str(uuid4())
"""The hidden id that the page has for what is written on it."""
EDITED = "second <b>&amp;\nline"


def composer(answer: httpx.Response) -> tuple[str, dict[str, str]]:
    """Return where the form of a page leads, and what stands in it."""
    [(action, inside)] = re.findall(
        r'<form id="composer"[^>]* action="([^"]*)"[^>]*>(.*?)</form>', answer.text, re.DOTALL
    )
    [message_id] = re.findall(r'<input type="hidden" name="id" value="([^"]*)">', inside)
    [text] = re.findall(r"<textarea[^>]*>(.*?)</textarea>", inside, re.DOTALL)
    return action, {"id": message_id, "text": html.unescape(text)}


async def texts_of(rest: httpx.AsyncClient, conversation_id: str) -> list[str]:
    log = await rest.get(f"/api/native/conversations/{conversation_id}/events")
    return [each["text"] for each in log.json()["events"] if each["source"] == "user"]


async def test_what_is_edited_after_it_was_sent_stands_in_the_box_to_be_sent_again(
    visitor: Browser, rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    await visitor.send("/c/talk/messages", {"id": SAID, "text": "first"}, page="/c/talk")
    answer = await visitor.send("/c/talk/messages", {"id": SAID, "text": EDITED}, page="/c/talk")
    action, form = composer(answer)
    assert (answer.status_code, form["text"], form["id"] != SAID) == (409, EDITED, True)
    assert "was already sent with a different text" in words(answer)
    assert (await visitor.send(action, form, page="/c/talk")).status_code == 302
    assert await texts_of(rest, "talk") == ["first", EDITED]


async def test_what_is_edited_after_it_began_a_conversation_can_be_said_in_it(
    visitor: Browser, rest: httpx.AsyncClient
) -> None:
    begun = await visitor.send("/begin", {"id": SAID, "text": "first"}, page="/")
    answer = await visitor.send("/begin", {"id": SAID, "text": EDITED}, page="/")
    action, form = composer(answer)
    assert (answer.status_code, action) == (409, f"{begun.headers['location']}/messages")
    assert "was already sent with a different text" in words(answer)
    await visitor.send(action, form, page="/")
    assert await texts_of(rest, begun.headers["location"].removeprefix("/c/")) == ["first", EDITED]


@pytest.mark.parametrize("path", ["/c/talk/messages", "/begin"])
async def test_what_cannot_be_stored_now_stands_in_the_box_with_the_reason(
    visitor: Browser, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    with monkeypatch.context() as busy:
        busy.setattr(writes, "append_many", find_locked)
        answer = await visitor.send(path, {"id": SAID, "text": EDITED}, page="/")
    action, form = composer(answer)
    assert (answer.status_code, form["text"]) == (503, EDITED)
    assert "The conversation is locked by another process. Try again" in words(answer)
    assert (await visitor.send(action, form, page="/")).status_code == 302


async def test_links_of_a_page_that_refuses_a_message_lead_to_the_conversation(
    visitor: Browser, conversation: ConversationRef
) -> None:
    await visitor.send("/c/talk/messages", {"id": SAID, "text": "first"}, page="/c/talk")
    answer = await visitor.send("/c/talk/messages", {"id": SAID, "text": "second"}, page="/c/talk")
    links = re.findall(r'<a href="([^"]*)" data-(?:older|newer)>', answer.text)
    assert [link.partition("?")[0] for link in links] == ["/c/talk", "/c/talk"]


async def test_nobody_begins_a_conversation_that_is_anothers(visitor: Browser, bob: User) -> None:
    await astore.call(creation.create, bob, conversation_id=SAID.replace("-", ""))
    answer = await visitor.send("/begin", {"id": SAID, "text": "mine"}, page="/")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("cost", "unpriced", "shown"),
    [
        (1.5, 0, "12,345 tokens in, 678 out · $1.50"),
        (0.01234, 0, "12,345 tokens in, 678 out · $0.0123"),
        (0.00001, 0, "12,345 tokens in, 678 out · under $0.0001"),
        (0.5, 2, "12,345 tokens in, 678 out · $0.5000 and calls of unknown cost"),
        (0.0, 1, "12,345 tokens in, 678 out · cost unknown"),
        (0.0, 0, "12,345 tokens in, 678 out · $0.00"),
    ],
)
def test_the_menu_says_what_the_models_have_used(
    conversation: ConversationRef, alice: User, cost: float, unpriced: int, shown: str
) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(
        prompt_tokens=12345, completion_tokens=678, accumulated_cost=cost
    )
    ModelUse.objects.create(
        user=alice, conversation_id=conversation.pk, model="a", day=date(2026, 11, 1), unpriced_calls=unpriced
    )
    answer = Client(headers={"host": "localhost"}).get("/c/talk/usage")
    assert answer.content.decode() == shown


def test_the_menu_says_that_nothing_was_used(conversation: ConversationRef) -> None:
    answer = Client(headers={"host": "localhost"}).get("/c/talk/usage")
    assert (answer.content, answer.headers["content-type"]) == (
        b"No tokens used yet",
        "text/html; charset=utf-8",
    )


async def test_what_messages_do_while_the_agent_works_is_chosen_in_the_menu(
    conversation: ConversationRef, visitor: Browser
) -> None:
    first = await visitor.http.get("/c/talk")
    assert '<option value="queue" selected>' in first.text
    answer = await visitor.send("/c/talk/while-working", {"while_working": "reject"}, page="/c/talk")
    assert (answer.status_code, answer.headers["location"]) == (302, "/c/talk")
    assert '<option value="reject" selected>' in (await visitor.http.get("/c/talk")).text
    wrong = await visitor.send("/c/talk/while-working", {"while_working": "listen"}, page="/c/talk")
    assert wrong.status_code == 400


async def test_a_script_that_chooses_what_messages_do_gets_no_page(
    conversation: ConversationRef, visitor: Browser
) -> None:
    answer = await visitor.send(
        "/c/talk/while-working",
        {"while_working": "steer"},
        page="/c/talk",
        headers={"HX-Request": "true"},
    )
    assert (answer.status_code, answer.content) == (204, b"")
