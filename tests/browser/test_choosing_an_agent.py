"""A new conversation with an agent of one's choice, in a browser."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.line import Line
from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.people.clients import HTTP

pytestmark = once


def test_a_new_conversation_is_answered_by_the_agent_that_was_chosen(page: Page, site: Site) -> None:
    page.goto("/")
    page.locator(".choices summary").press("Enter")
    page.get_by_role("combobox", name="Agent", exact=True).select_option("replay")
    page.get_by_role("combobox", name="Model", exact=True).fill("openai/gpt-5")
    page.locator("#text").fill("Play it.")
    page.locator("#text").press("Enter")
    expect(page.locator("#events")).to_contain_text("This conversation has no recording to play.")
    page.locator("#menu > summary").click()
    expect(page.locator("#menu")).to_contain_text("Replay · openai/gpt-5")
    page.get_by_role("link", name="Agent and model…").click()
    expect(page.get_by_label("Replay")).to_be_checked()


def test_a_conversation_says_that_its_program_is_not_connected_until_it_answers(
    page: Page, site: Site
) -> None:
    line, told = Line(page), "The agent helper is not connected. It answers once its program is started."
    talk = Talk(page, site, site.create())
    options = f"{site.url}/api/native/conversations/{talk.id}/options"
    HTTP.patch(options, json={"agent": "remote:helper"}).raise_for_status()
    talk.open()
    said = page.locator("#next .words")
    expect(page.locator("#agent-state")).to_have_text("Not started")
    expect(said).to_have_text(told)
    talk.say("Hello")
    expect(page.locator("#agent-state")).to_have_text("Failed")
    expect(said).to_have_text(told)
    expect(talk.delivery("Hello")).to_have_text("Queued until the agent's program is started")
    running = {"status": "running", "execution_status": "running", "agent": "remote:helper"}
    line.say({"type": "conversation", "changes": {"loop": {**running, "error": "", "ended_by": ""}}})
    expect(said).to_have_text("")
