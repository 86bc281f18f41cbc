"""The trash: what was deleted, whose it is, and the way back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.log import writes
from conversations.models import Conversation, Purge
from conversations.store import creation, deletion
from convserver.web import trash
from tests.conftest import once
from tests.support.data.events import event

pytestmark = once


@pytest.fixture
def browser(alice: User) -> Browser:
    """Alice's, in local mode, without scripts."""
    return Browser(headers={"host": "localhost", "referer": "http://localhost/deleted"})


def delete(owner: User, *titles: str) -> None:
    """Make a conversation of two events for each title and delete it."""
    for title in titles:
        made = creation.create(owner, conversation_id=title.replace(" ", "-"), title=title)
        writes.append(made, [event("Good morning"), event("Good night")])
        deletion.soft_delete(made)


def titles(answer: Any) -> list[str]:
    """Return the titles that the trash shows, in order."""
    return re.findall(r'<div class="thing"><bdi>(.*?)</bdi>', answer.content.decode())


def test_what_was_deleted_last_comes_first_with_its_size(alice: User, browser: Browser) -> None:
    delete(alice, "one", "two")
    creation.create(alice, conversation_id="standing")
    answer = browser.get("/deleted")
    assert titles(answer) == ["two", "one"]
    assert answer.content.decode().count("2 events") == 2


def test_a_restored_conversation_stands_again_and_can_be_deleted_again(
    live: None, alice: User, browser: Browser
) -> None:
    delete(alice, "one", "two")
    answer = browser.post("/c/one/restore", follow=True)
    assert titles(answer) == ["two"]
    assert Conversation.objects.active().get().public_id == "one"
    assert 'action="/c/one/delete"' in answer.content.decode()


def test_the_trash_says_how_long_it_keeps_what_is_in_it(
    browser: Browser, alice: User, configured: Callable[..., None]
) -> None:
    delete(alice, "one")
    page = browser.get("/deleted").content.decode()
    assert "for 30 days" in page
    assert "Can be restored until" in page
    configured(deleted_days=None)
    page = browser.get("/deleted").content.decode()
    assert "There is no time limit." in page
    assert "Can be restored until" not in page


def test_a_conversation_goes_for_good_after_a_question_that_names_it(browser: Browser, alice: User) -> None:
    delete(alice, "one", "two")
    assert 'href="/c/one/purge"' in browser.get("/deleted").content.decode()
    question = browser.get("/c/one/purge").content.decode()
    assert "<bdi>one</bdi>" in question
    assert "2 events" in question
    answer = browser.post("/c/one/purge", follow=True)
    assert titles(answer) == ["two"]
    assert "The conversation was deleted for good." in answer.content.decode()
    assert browser.post("/c/one/restore").status_code == 404
    assert browser.get("/c/one/purge").status_code == 404
    assert "You can restore it" not in browser.get("/c/one").content.decode()
    record = Purge.objects.get()
    assert (record.requested_by, record.reason) == (alice.username, "by its owner")


def test_what_is_not_deleted_cannot_go_for_good(browser: Browser, alice: User) -> None:
    creation.create(alice, conversation_id="standing")
    assert browser.post("/c/standing/purge").status_code == 404
    assert Conversation.objects.active().count() == 1


def test_pages_bring_each_once_though_some_are_restored_meanwhile(
    alice: User, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trash, "PAGE_ROWS", 2)
    delete(alice, "one", "two", "three", "four", "five")
    first = browser.get("/deleted")
    deletion.restore(Conversation.objects.get(public_id="five").ref)
    second = browser.get("/deleted" + next_page(first))
    assert (titles(first), titles(second)) == (["five", "four"], ["three", "two"])
    assert titles(browser.get("/deleted" + next_page(second))) == ["one"]


def test_a_place_that_is_none_shows_the_newest(alice: User, browser: Browser) -> None:
    delete(alice, "one")
    assert titles(browser.get("/deleted?page_id=nowhere")) == ["one"]


def test_the_trash_of_others_is_not_shown_nor_what_they_restored(
    accounts: None, alice: User, bob: User
) -> None:
    delete(alice, "one")
    creation.create(alice, conversation_id="standing", title="A secret plan")
    stranger = Browser(headers={"host": "localhost"})
    stranger.force_login(bob)
    answer = stranger.get("/deleted?restored=standing")
    assert titles(answer) == []
    assert "A secret plan" not in answer.content.decode()


def next_page(answer: Any) -> str:
    """Return the query of the link to the next page."""
    found = re.search(r'href="(\?page_id=[^"]*)"', answer.content.decode())
    return found[1] if found else ""


def test_the_page_of_a_deleted_conversation_lets_its_owner_restore_it(alice: User, browser: Browser) -> None:
    delete(alice, "talk")
    answer = browser.get("/c/talk")
    assert answer.status_code == 404
    assert "Conversation deleted" in answer.content.decode()
    assert 'action="/c/talk/restore"' in answer.content.decode()
    answer = browser.post("/c/talk/restore", headers={"referer": "http://localhost/c/talk"}, follow=True)
    assert (answer.status_code, answer.request["PATH_INFO"]) == (200, "/c/talk")


def test_nobody_else_is_told_that_a_conversation_was_deleted(bob: User, browser: Browser) -> None:
    delete(bob, "theirs")
    answer = browser.get("/c/theirs")
    assert answer.status_code == 404
    assert "Conversation not found" in answer.content.decode()
    assert "/restore" not in answer.content.decode()
