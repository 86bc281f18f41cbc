"""The files of a conversation, beside it or over it."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from tests.browser.conftest import Browse
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once


@pytest.fixture(params=[{}, {"viewport": {"width": 390, "height": 844}}], ids=["wide", "narrow"])
def context(request: pytest.FixtureRequest, browse: Browse) -> BrowserContext:
    """A browser with room beside the conversation, and one without."""
    return browse(**request.param)


def files(talk: Talk) -> Locator:
    talk.page.get_by_role("link", name="Files", exact=True).click()
    panel = talk.page.get_by_role("complementary", name="Files")
    expect(panel).to_be_visible()
    return panel


@pytest.mark.sampled(1)
def test_files_are_added_opened_and_left_without_leaving_the_conversation(talk: Talk) -> None:
    panel = files(talk)
    expect(panel).to_contain_text("There are no files yet.")
    added = [
        {"name": "main.py", "mimeType": "text/x-python", "buffer": b"print('hello')\n"},
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"Buy milk\n"},
    ]
    panel.get_by_label("Add files").set_input_files(added)  # type: ignore[arg-type]
    panel.get_by_role("button", name="Add", exact=True).click()
    expect(panel).to_contain_text("Added main.py.")
    panel.get_by_role("link", name="main.py").click()
    expect(panel.get_by_role("heading", name="main.py")).to_be_focused()
    expect(panel.locator("code")).to_have_text("print('hello')\n")
    panel.get_by_role("link", name="Files", exact=True).click()
    expect(panel.get_by_role("link", name="notes.txt")).to_be_visible()
    expect(talk.page).to_have_url(f"{talk.site.url}/c/{talk.id}")
    talk.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(talk.page.get_by_role("link", name="Files", exact=True)).to_be_focused()
    expect(talk.box).to_be_visible()


@pytest.mark.sampled(1)
def test_the_panel_shows_what_was_asked_for_last_and_nothing_else(talk: Talk) -> None:
    panel = files(talk)
    expect(panel.get_by_role("link", name="Changes")).to_be_visible()
    # Both in one turn of the page's script, so that the first has no answer before the second is asked.
    talk.page.evaluate("for (const tab of document.querySelectorAll('#beside .tabs a')) tab.click()")
    expect(panel.get_by_role("heading", name="Changes")).to_be_visible()
    assert panel.locator(":scope > *").evaluate_all("all => all.map((each) => each.className)") == [
        "page files"
    ]


@pytest.mark.sampled(1)
def test_a_refusal_is_shown_in_the_panel(talk: Talk) -> None:
    panel = files(talk)
    panel.locator("input[type=file]").evaluate("field => field.removeAttribute('required')")
    panel.get_by_role("button", name="Add", exact=True).click()
    expect(panel.get_by_role("alert")).to_have_text("Choose a file.")
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()
