"""Branches in the pages: begun at any event, linked both ways, one after the other."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.log import writes
from conversations.models import Conversation, ConversationRef
from conversations.store import copying, creation, deletion
from tests.conftest import once
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S

pytestmark = once


@pytest.fixture
def browser(alice: User) -> Browser:
    """Alice's, in local mode, without scripts."""
    return Browser(headers={"host": "localhost", "referer": "http://localhost/c/talk"})


@pytest.fixture
def talk(live: None, alice: User) -> ConversationRef:
    made = creation.create(alice, conversation_id="talk", title="A talk")
    writes.append(made, [event("one"), event("two"), event("three")])
    return made


def text_of(answer: Any) -> str:
    """Return what the page says, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def begun(browser: Browser, after: int, of: str = "talk") -> Conversation:
    """Begin a branch as the form does, and return it."""
    answer = browser.post(f"/c/{of}/branch", {"after": after})
    assert answer.status_code == 302
    return Conversation.objects.get(public_id=answer["location"].rpartition("/")[2])


def test_an_event_leads_to_a_page_that_asks_before_it_begins_a_branch(
    browser: Browser, talk: ConversationRef
) -> None:
    assert 'href="/c/talk/branch?after=1"' in browser.get("/c/talk").content.decode()
    assert "two" in text_of(browser.get("/c/talk/branch?after=1"))
    assert Conversation.objects.count() == 1


def test_a_branch_begins_with_what_came_before_and_leaves_the_conversation_as_it_was(
    browser: Browser, talk: ConversationRef
) -> None:
    made = begun(browser, 1)
    assert (made.title, made.next_seq, made.forked_at) == ("A talk", 2, 1)
    assert Conversation.objects.get(pk=talk.pk).next_seq == 3
    assert re.search(r"Branch \S 2/2 of A talk", text_of(browser.get(f"/c/{made.public_id}")))


def test_a_conversation_lists_its_branches_and_where_they_leave(
    browser: Browser, talk: ConversationRef
) -> None:
    assert "branch" not in text_of(browser.get("/c/talk")).replace("Branch from here", "").lower()
    made = begun(browser, 1)
    shown = text_of(browser.get("/c/talk"))
    assert "1 branch " in shown
    assert "from event 2 on" in shown
    assert f'href="/c/{made.public_id}"' in browser.get("/c/talk").content.decode()


def test_branches_of_one_event_lead_to_each_other_in_order(browser: Browser, talk: ConversationRef) -> None:
    first, second = begun(browser, 1), begun(browser, 1)
    html = browser.get(f"/c/{first.public_id}").content.decode()
    before, after = re.findall(r'<a href="/c/([^"#]+)#e1" aria-label="The branch', html)
    assert (before, after) == ("talk", second.public_id)
    assert "2/3" in text_of(browser.get(f"/c/{first.public_id}"))


def test_what_is_deleted_is_no_branch_any_more(browser: Browser, talk: ConversationRef) -> None:
    made = begun(browser, 1)
    deletion.soft_delete(talk)
    assert "2/2" not in text_of(browser.get(f"/c/{made.public_id}"))
    other = begun(browser, 0, of=made.public_id)
    deletion.soft_delete(other.ref)
    assert "1 branch" not in text_of(browser.get(f"/c/{made.public_id}"))


def test_a_place_that_is_none_begins_no_branch(
    browser: Browser, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    for after in ["3", "-1", "x", "", "9" * 30, "²"]:
        with subtests.test(after=after):
            assert browser.get("/c/talk/branch", {"after": after}).status_code == 404
            assert browser.post("/c/talk/branch", {"after": after}).status_code == 404
            assert Conversation.objects.count() == 1


def test_a_long_branch_says_how_far_it_is_until_it_is_whole(
    browser: Browser, talk: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conversations.store.forks.AT_ONCE_EVENTS", 1)
    monkeypatch.setattr("convserver.web.conversations.branching.COPIED_AT_ONCE_S", 0.0)
    answer = browser.post("/c/talk/branch", {"after": 1})
    page = browser.get(answer["Location"])
    assert page.status_code == 503
    assert "0 of 2 events are here" in text_of(page)
    branch = Conversation.objects.get(forked_from=talk.pk)
    copying.advance(branch.ref, seconds=WAIT_S)
    assert browser.get(answer["Location"]).status_code == 200
