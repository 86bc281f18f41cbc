"""Choosing many conversations in the list, and what is done to all of them at once."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.conftest import once

pytestmark = once

ROW_FOCUS = "/web/row_focus"
UNTIL_LOADED = """
async (part) => {
  await import(performance.getEntriesByType("resource").find(({ name }) => name.includes(part)).name);
}
"""
"""Waits for a module that the page has asked for."""


@pytest.fixture
def many(site: Site) -> list[str]:
    """Fifty conversations, the newest first."""
    return [site.create(title=f"Number {number}") for number in range(50)][::-1]


@pytest.mark.slow
def test_fifty_conversations_are_labelled_at_once_and_it_is_undone(
    page: Page, site: Site, many: list[str]
) -> None:
    page.goto("/")
    page.get_by_role("button", name="Select conversations").click()
    bar = page.get_by_role("region", name="Selected conversations")
    bar.get_by_role("button", name="Select all").click()
    expect(bar.get_by_role("status")).to_have_text("All 50 selected")
    bar.get_by_role("button", name="Label…").click()
    bar.get_by_label("Label", exact=True).fill("project: website")
    bar.get_by_role("button", name="Add").click()
    expect(page.locator("#toasts")).to_contain_text("Labelled 50 conversations")
    expect(page.locator(f"#row-{many[0]} .label")).to_have_text("project: website")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(f"#row-{many[0]} .label")).to_have_count(0)
    page.goto("/?label=project:website")
    expect(page.locator(".row")).to_have_count(0)


@pytest.mark.slow
def test_what_has_a_label_is_found_by_it(page: Page, site: Site) -> None:
    conversation_id = site.create(title="Found", tags={"project": "website"})
    site.create(title="Another one")
    page.goto("/")
    page.get_by_text("Filters", exact=True).click()
    page.get_by_label("Label", exact=True).fill("project:website")
    page.get_by_label("Label", exact=True).press("Tab")
    expect(page.locator(".row")).to_have_count(1)
    expect(page.locator(f"#row-{conversation_id} .label")).to_have_text("project: website")


def test_what_was_chosen_is_archived_and_comes_back_by_undo(page: Page, site: Site, many: list[str]) -> None:
    page.goto("/")
    page.get_by_role("button", name="Select conversations").click()
    boxes = page.locator(".pick")
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    bar = page.get_by_role("region", name="Selected conversations")
    expect(bar.get_by_role("status")).to_have_text("4 selected")
    bar.get_by_role("button", name="Archive").click()
    expect(page.locator(f"#row-{many[1]}")).to_have_count(0)
    expect(page.locator("#toasts")).to_contain_text("Archived 4 conversations")
    expect(bar.get_by_role("status")).to_have_text("0 selected")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(f"#row-{many[1]}")).to_be_visible()
    expect(page.locator(f"#row-{many[4]}")).to_be_visible()


@pytest.mark.slow
def test_keys_choose_a_range_clear_it_and_end(page: Page, many: list[str]) -> None:
    page.goto("/")
    page.locator(f"#row-{many[2]} .open").focus()
    page.keyboard.press("x")
    bar = page.get_by_role("region", name="Selected conversations")
    expect(bar.get_by_role("status")).to_have_text("1 selected")
    page.locator(".pick").nth(2).focus()
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    expect(bar.get_by_role("status")).to_have_text("3 selected")
    page.keyboard.press("Escape")
    expect(bar.get_by_role("status")).to_have_text("0 selected")
    page.keyboard.press("Escape")
    expect(bar).to_have_count(0)
    expect(page.locator(".pick")).to_have_count(0)


@pytest.mark.slow
def test_what_was_chosen_is_exported_as_one_file(page: Page, many: list[str]) -> None:
    page.goto("/")
    page.get_by_role("button", name="Select conversations").click()
    page.locator(".pick").nth(0).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export", exact=True).click()
    assert re.fullmatch(r"conversations-\d{4}-\d\d-\d\d\.zip", download.value.suggested_filename)


def test_an_answer_is_regenerated_and_a_step_leads_back(page: Page, site: Site) -> None:
    talk = site.create(title="A question")
    site.send(talk, {"type": "message", "text": "Hello"})
    page.goto(f"/c/{talk}")
    answer = page.locator("#events article.message.agent")
    expect(answer).to_contain_text("You said: Hello")
    page.reload()
    with page.expect_request_finished(lambda request: ROW_FOCUS in request.url):
        answer.locator(".event-menu > summary").click()  # a first use fetches what makes it one step
    page.evaluate(UNTIL_LOADED, ROW_FOCUS)
    answer.get_by_role("link", name="Regenerate").click()
    expect(page).not_to_have_url(re.compile(talk))
    expect(page.locator("#events article.message.agent")).to_contain_text("You said: Hello")
    expect(page.locator(".ways")).to_contain_text("2/2")
    page.get_by_label("The branch before this one").click()
    expect(page).to_have_url(re.compile(talk))
