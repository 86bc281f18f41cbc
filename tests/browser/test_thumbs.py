"""Thumbs for an answer, in a browser: in place, by keyboard, and on a page of their own without scripts."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.people.clients import HTTP
from tests.support.wires.network import wait_until

pytestmark = once


def stored(site: Site, talk: Talk) -> list[dict[str, Any]]:
    address = f"{site.url}/api/native/conversations/{talk.id}/feedback"
    found: list[dict[str, Any]] = HTTP.get(address).raise_for_status().json()["feedback"]
    return [{name: each[name] for name in ("polarity", "reason")} for each in found]


def answered(page: Page, site: Site) -> Talk:
    talk = Talk(page, site, site.create()).open()
    talk.say("Good morning")
    talk.answered("You said: Good morning")
    return talk


def test_a_thumb_is_stored_at_once_and_its_reason_after_it(page: Page, site: Site) -> None:
    talk = answered(page, site)
    bad = talk.messages("agent").get_by_role("link", name="Bad answer")
    bad.press("Enter")
    reason = page.get_by_role("textbox", name="Why? (optional)")
    expect(reason).to_be_focused()
    expect(bad).to_have_attribute("aria-current", "true")
    assert stored(site, talk) == [{"polarity": "negative", "reason": ""}]
    reason.fill("It repeats me.")
    reason.press("Enter")
    expect(bad).to_be_focused()
    wait_until(lambda: stored(site, talk) == [{"polarity": "negative", "reason": "It repeats me."}])
    page.reload()
    expect(bad).to_have_attribute("aria-current", "true")
    talk.messages("agent").get_by_role("link", name="Good answer").click()
    reason.press("Escape")
    expect(bad).not_to_have_attribute("aria-current", "true")
    assert stored(site, talk) == [{"polarity": "positive", "reason": ""}]
    talk.messages("agent").get_by_role("link", name="Good answer").click()
    wait_until(lambda: stored(site, talk) == [])


def test_an_answer_is_rated_without_scripts(browser: Browser, page: Page, site: Site) -> None:
    talk = answered(page, site)
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{site.url}/c/{talk.id}")
    plain.get_by_role("link", name="Good answer").click()
    expect(plain.get_by_role("radio", name="Good answer")).to_be_checked()
    plain.get_by_label("Why? (optional)").fill("Right.")
    plain.get_by_role("button", name="Save").click()
    expect(plain.get_by_role("link", name="Good answer")).to_have_attribute("aria-current", "true")
    assert stored(site, talk) == [{"polarity": "positive", "reason": "Right."}]
    context.close()
