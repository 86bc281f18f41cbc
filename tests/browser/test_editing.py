"""A message is edited where it is: Enter sends it in a branch, Escape leaves it as it was."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.browser.violations import violations_in_themes
from tests.conftest import once

pytestmark = once


def edited(talk: Talk) -> Locator:
    """Begin to edit the first message; return its field."""
    article = talk.messages("user").first
    article.get_by_label("More about this event").click()
    article.get_by_role("link", name="Edit and send again").click()
    field = article.get_by_role("textbox", name="Edited message")
    expect(field).to_be_focused()
    return field


def begun(page: Page, site: Site) -> Talk:
    talk = Talk(page, site, site.create(title="A walk")).open()
    talk.say("Hello **there**")
    talk.answered("You said: Hello there")
    return talk


def test_an_edited_message_is_sent_by_enter_in_a_branch(page: Page, site: Site) -> None:
    talk = begun(page, site)
    field = edited(talk)
    expect(field).to_have_value("Hello **there**")
    expect(talk.messages("user").first.locator(".body")).to_be_hidden()
    assert violations_in_themes(page) == []
    field.fill("Good morning")
    field.press("Shift+Enter")
    page.keyboard.type("to you")
    field.press("Enter")
    expect(page.locator(".ways")).to_contain_text("2/2")
    expect(talk.messages("user")).to_have_count(1)
    expect(talk.messages("user")).to_contain_text("Good morning")
    expect(talk.messages("agent").first).to_contain_text("Good morning")
    assert site.said(talk.id) == ["Hello **there**"]


def test_escape_leaves_a_message_as_it_was(page: Page, site: Site) -> None:
    talk = begun(page, site)
    edited(talk).fill("Something else")
    page.keyboard.press("Escape")
    article = talk.messages("user").first
    expect(article.get_by_role("textbox")).to_have_count(0)
    expect(article.locator(".body")).to_be_visible()
    expect(article.get_by_label("More about this event")).to_be_focused()
    assert page.url.endswith(talk.id)
    assert site.said(talk.id) == ["Hello **there**"]
