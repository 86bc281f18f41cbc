"""A browser without JavaScript: everything can be read, and a message can be sent."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.people.clients import WAIT_S

pytestmark = once


@pytest.fixture
def context(browse: Browse) -> BrowserContext:
    """A browser that runs no script of any page."""
    return browse(java_script_enabled=False)


@pytest.fixture
def talk(context: BrowserContext, site: Site) -> Talk:
    """A conversation of 120 messages, open."""
    talk = Talk(context.new_page(), site, site.create(title="To be read"))
    site.record(talk.id, [message(f"Message number {number}") for number in range(120)])
    talk.page.goto(f"/c/{talk.id}")
    return talk


def test_a_conversation_is_read_from_the_end_to_the_beginning_by_links(talk: Talk) -> None:
    expect(talk.articles.last).to_contain_text("Message number 119")
    for first in (20, 0):
        talk.page.get_by_role("link", name="Earlier events").click()
        expect(talk.articles.first).to_contain_text(f"Message number {first}")
    expect(talk.page.get_by_role("link", name="Earlier events")).to_be_hidden()
    talk.page.get_by_role("link", name="Later events").click()
    expect(talk.articles.first).to_contain_text("Message number 20")


def test_a_message_is_sent_by_the_form(talk: Talk) -> None:
    talk.box.fill("Sent by a form")
    talk.page.get_by_role("button", name="Send").click()
    expect(talk.messages("user").filter(has_text="Sent by a form")).to_be_in_viewport()
    assert talk.site.said(talk.id, after=119) == ["Sent by a form"]


def test_a_conversation_is_begun_by_the_form(talk: Talk) -> None:
    talk.page.goto("/")
    talk.box.fill("Begun by a form")
    talk.page.get_by_role("button", name="Send").click()
    expect(talk.messages("user")).to_contain_text("Begun by a form")


@pytest.mark.slow
def test_nothing_is_offered_that_needs_a_script(talk: Talk) -> None:
    for hidden in ("#connection", "#to-end", "#approval", "#working"):
        expect(talk.page.locator(hidden)).to_be_hidden()
    expect(talk.page.get_by_role("button", name="Attach files")).to_be_hidden()


def test_the_page_says_how_the_agent_stands_and_how_an_answer_comes(
    talk: Talk, browse: Browse, site: Site
) -> None:
    expect(talk.page.locator("#agent-state")).to_have_text("Not started")
    talk.box.fill("/approve")
    talk.page.get_by_role("button", name="Send").click()
    expect(talk.page.get_by_text("this page doesn't update by itself")).to_be_visible()
    expect(Talk(browse().new_page(), site, talk.id).open().approval).to_be_visible()
    talk.page.get_by_role("link", name="Reload").click()
    expect(talk.page.locator("#agent-state")).to_have_text("Needs your approval")


def test_a_call_is_approved_by_a_form_after_all_of_it(talk: Talk) -> None:
    command = "echo\n" * 100 + "rm -r build"
    talk.site.send(talk.id, {"type": "message", "id": "1", "text": f"run this: {command}"})
    form = talk.page.locator("form.decision")
    _reload_until(talk, form)
    expect(talk.waiting.locator(".reading")).to_contain_text("rm -r build")
    assert talk.waiting.locator(".reading").evaluate("(all) => all.scrollHeight - all.clientHeight") <= 1
    form.get_by_role("button", name="Approve").click()
    expect(form).to_have_count(0)
    _reload_until(talk, talk.messages("agent").filter(has_text="Done."))


def test_a_decision_that_comes_too_late_leads_back_to_the_conversation_and_is_told_once(
    talk: Talk, browse: Browse, site: Site
) -> None:
    site.send(talk.id, {"type": "message", "id": "1", "text": "/approve"})
    form = talk.page.locator("form.decision")
    _reload_until(talk, form)
    other = Talk(browse().new_page(), site, talk.id).open()
    other.asked()
    other.approval.get_by_role("button", name="Reject").click()
    other.answered("OK, I won't.")
    form.get_by_role("button", name="Approve").click()
    expect(talk.page.get_by_text("No call is waiting for approval.")).to_be_visible()
    expect(talk.page).to_have_url(f"{site.url}/c/{talk.id}")
    expect(form).to_have_count(0)
    talk.page.goto("/")
    talk.page.go_back()
    expect(talk.messages("agent").filter(has_text="OK, I won't.")).to_be_visible()
    expect(talk.page.get_by_text("No call is waiting for approval.")).to_have_count(0)


def _reload_until(talk: Talk, shown: Locator) -> None:
    """Load the page until it shows something."""
    deadline = time.monotonic() + WAIT_S
    while not shown.count():
        assert time.monotonic() < deadline, "It is not shown."
        talk.page.reload()


@pytest.mark.slow
def test_the_words_for_pages_without_scripts_are_not_shown_by_others(browse: Browse, site: Site) -> None:
    talk = Talk(browse().new_page(), site, site.create(title="With scripts")).open()
    expect(talk.page.locator("#agent-state")).to_have_text("Not started")
    expect(talk.page.locator(".scriptless")).to_be_hidden()
