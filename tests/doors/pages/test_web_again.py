"""Asking differently or for another answer, in branches that say a message again; and looking back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.events import NewEvent
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event
from conversations.store import copying, creation
from tests.conftest import once
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S

pytestmark = once


@pytest.fixture
def browser(live: None, alice: User) -> Browser:
    return Browser(headers={"host": "localhost", "referer": "http://localhost/c/talk"})


@pytest.fixture
def talk(live: None, alice: User) -> ConversationRef:
    """A question, its answer, another question and its answer."""
    made = creation.create(alice, conversation_id="talk", title="A talk", tags={"work": ""})
    said = [("user", "How?"), ("agent", "So."), ("user", "Why?"), ("agent", "Because.")]
    writes.append(made, [spoken(source, text) for source, text in said])
    return made


def spoken(source: str, text: str) -> NewEvent:
    return event(raw=json.dumps({"action": "message", "source": source, "args": {"content": text}}))


def said_in(public_id: str) -> list[str]:
    rows = Event.objects.filter(conversation__public_id=public_id, kind="message", source="user")
    return list(rows.order_by("seq").values_list("text", flat=True))


def sent(browser: Browser, of: str = "talk", **form: Any) -> Conversation:
    answer = browser.post(f"/c/{of}/again", form)
    assert answer.status_code == 302, answer.content
    return Conversation.objects.get(public_id=answer["location"].rpartition("/")[2])


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_menus_lead_to_what_can_be_said_again(browser: Browser, talk: ConversationRef) -> None:
    html = browser.get("/c/talk").content.decode()
    assert re.findall(r"/c/talk/again\?(?:message|answer)=\d", html) == [
        f"/c/talk/again?{what}={seq}" for seq, what in enumerate(["message", "answer"] * 2)
    ]
    assert "How?" in text_of(browser.get("/c/talk/again?message=0"))
    assert "Why?" in text_of(browser.get("/c/talk/again?answer=3"))
    assert Conversation.objects.count() == 1


def test_an_edited_message_is_said_in_a_branch_that_ends_before_it(
    browser: Browser, talk: ConversationRef
) -> None:
    made = sent(browser, message=2, text="Why not?")
    assert said_in(made.public_id)[:2] == ["How?", "Why not?"]
    assert (made.forked_from_id, made.forked_at, made.title, made.tags) == (
        talk.pk,
        1,
        "A talk",
        {"work": ""},
    )
    assert said_in("talk") == ["How?", "Why?"]


def test_another_answer_is_asked_for_with_the_same_words(browser: Browser, talk: ConversationRef) -> None:
    made = sent(browser, answer=3)
    assert (said_in(made.public_id), made.forked_at) == (["How?", "Why?"], 1)
    assert made.asked_through == 2


def test_the_first_message_is_said_again_in_a_branch_that_begins_empty(
    browser: Browser, talk: ConversationRef
) -> None:
    made = sent(browser, message=0, text="How else?")
    assert (said_in(made.public_id), made.forked_at) == (["How else?"], -1)
    assert "2/2" in text_of(browser.get(f"/c/{made.public_id}"))


def test_all_answers_to_one_message_are_branches_of_one_conversation(
    browser: Browser, talk: ConversationRef
) -> None:
    first = sent(browser, answer=3)
    second = sent(browser, of=first.public_id, message=2, text="Why?")
    assert second.forked_from_id == talk.pk
    assert "3/3" in text_of(browser.get(f"/c/{second.public_id}"))
    third = sent(browser, of=second.public_id, message=0, text="What?")
    assert (third.forked_from_id, third.forked_at) == (talk.pk, -1)


def test_a_form_that_is_sent_twice_begins_one_branch(browser: Browser, talk: ConversationRef) -> None:
    form: dict[str, Any] = {"answer": 3, "id": "c0ffee00-0000-4000-8000-000000000001"}
    assert sent(browser, **form) == sent(browser, **form)
    assert Conversation.objects.count() == 2
    assert said_in("c0ffee00000040008000000000000001") == ["How?", "Why?"]


NOT_AGAIN: list[tuple[str, int]] = [
    ("message=1", 404),
    ("message=9", 404),
    ("message=x", 404),
    ("answer=9", 404),
    ("answer=0", 409),
    ("", 404),
    ("message=" + "9" * 30, 404),
]


def test_what_cannot_be_said_again_begins_nothing(
    browser: Browser, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    for query, status in NOT_AGAIN:
        with subtests.test(query=query, status=status):
            assert browser.get(f"/c/talk/again?{query}").status_code == status
            assert (
                browser.post("/c/talk/again", dict(p.split("=") for p in query.split("&") if p)).status_code
                == status
            )
            assert Conversation.objects.count() == 1


def test_an_edited_message_without_words_is_refused(browser: Browser, talk: ConversationRef) -> None:
    assert browser.post("/c/talk/again", {"message": 0, "text": " "}).status_code == 400
    assert Conversation.objects.count() == 1


def test_a_page_as_of_an_event_shows_what_was_there_and_takes_nothing(
    browser: Browser, talk: ConversationRef
) -> None:
    assert "/c/talk?as_of=1" in browser.get("/c/talk").content.decode()
    shown = browser.get("/c/talk?as_of=1")
    words = text_of(shown)
    assert "So." in words
    assert "Because." not in words.partition("read-only")[2]
    assert 'id="composer"' not in shown.content.decode()
    assert 'href="/c/talk"' in shown.content.decode()
    assert 'id="composer"' in browser.get("/c/talk?as_of=3").content.decode()


def test_a_long_log_as_of_an_event_comes_by_pages_that_never_go_beyond(
    browser: Browser, talk: ConversationRef
) -> None:
    writes.append(talk, [spoken("agent", f"number {number}") for number in range(100)])
    html = browser.get("/c/talk?as_of=80").content.decode()
    assert 'data-seq="80"' in html
    assert 'data-seq="81"' not in html
    assert "as_of=80&amp;before=31" in html
    before = browser.get("/c/talk?as_of=80&before=31").content.decode()
    assert 'data-seq="30"' in before
    assert 'data-seq="31"' not in before


def test_the_log_as_of_an_event_is_read_by_rest(browser: Browser, talk: ConversationRef) -> None:
    address = "/api/native/conversations/talk/events"

    def seqs(**query: Any) -> tuple[list[int], int]:
        answer = browser.get(address, query).json()
        return [each["seq"] for each in answer["events"]], answer["last_seq"]

    assert seqs(as_of=1) == ([0, 1], 1)
    assert seqs(as_of=1, after=0) == ([1], 1)
    assert seqs(as_of=2, before=4, limit=2) == ([1, 2], 2)
    assert seqs(as_of=2, before=1) == ([0], 2)
    assert seqs(as_of=99) == ([0, 1, 2, 3], 3)
    assert browser.get(address, {"as_of": -1}).status_code == 400


def test_what_was_written_is_kept_while_its_branch_is_copied(
    browser: Browser, talk: ConversationRef, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr("conversations.store.forks.AT_ONCE_EVENTS", 1)
    monkeypatch.setattr("convserver.web.conversations.again.COPIED_AT_ONCE_S", 0.0)
    forms: list[dict[str, Any]] = [{"message": 2, "text": "Why & <how> not?"}, {"answer": 3}]
    for number, form in enumerate(forms):
        with subtests.test(form=form):
            again = {**form, "id": f"c0ffee00-0000-4000-8000-00000000000{number}"}
            shown = browser.post("/c/talk/again", again)
            assert (shown.status_code, shown["retry-after"]) == (503, "5")
            assert "still being copied" in text_of(shown)
            html = shown.content.decode()
            assert f'name="id" value="{again["id"]}"' in html
            assert ("Why &amp; &lt;how&gt; not?" if "text" in form else "Why?") in html
            made = f"c0ffee0000004000800000000000000{number}"
            assert said_in(made) == []
            copying.advance(Conversation.objects.get(public_id=made).ref, seconds=WAIT_S)
            sent(browser, **again)
            assert said_in(made) == ["How?", form.get("text", "Why?")]
