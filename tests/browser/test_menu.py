"""The menu of a conversation's own page: what can be done to it without going to the list."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Locator, expect

from tests.browser.conftest import Browse
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once


@pytest.fixture(params=[{}, {"viewport": {"width": 390, "height": 844}}], ids=["wide", "narrow"])
def context(request: pytest.FixtureRequest, browse: Browse) -> BrowserContext:
    """A browser with room for the list, and one without."""
    return browse(**request.param)


def menu(talk: Talk) -> Locator:
    found = talk.page.locator("#menu")
    found.locator("summary").click()
    return found


@pytest.mark.sampled(1)
def test_a_conversation_is_renamed_by_its_menu(talk: Talk) -> None:
    found = menu(talk)
    found.get_by_label("Title").fill("A better title")
    found.get_by_label("Title").press("Enter")
    expect(talk.page.get_by_role("heading", level=1)).to_have_text("A better title")
    expect(talk.page.locator(f"#row-{talk.id} .title")).to_have_text("A better title")
    expect(found.locator("summary")).to_be_focused()
    expect(found.get_by_label("Title")).to_be_hidden()


@pytest.mark.sampled(1)
def test_a_conversation_is_deleted_by_its_menu_and_brought_back(talk: Talk) -> None:
    menu(talk).get_by_role("button", name="Delete").click()
    expect(talk.page).to_have_url(re.compile(r"/\?deleted="))
    row = talk.page.locator(f"#row-{talk.id}")
    expect(row).to_have_count(0)
    talk.page.get_by_role("button", name="Undo").click()
    expect(row).to_be_visible()


@pytest.mark.sampled(1)
def test_what_was_deleted_by_the_menu_is_undone_by_one_key(talk: Talk) -> None:
    menu(talk).get_by_role("button", name="Delete").click()
    undo = talk.page.get_by_role("button", name="Undo")
    expect(undo).to_be_focused()
    expect(undo).to_have_accessible_description("Deleted: A talk")
    talk.page.keyboard.press("z")
    expect(talk.page.locator(f"#row-{talk.id}")).to_be_visible()


@pytest.mark.slow
def test_a_z_that_is_typed_into_the_box_undoes_nothing(talk: Talk) -> None:
    menu(talk).get_by_role("button", name="Archive").click()
    expect(talk.page.get_by_role("button", name="Undo")).to_be_visible()
    talk.box.press_sequentially("z")
    expect(talk.box).to_have_value("z")
    expect(talk.page.get_by_role("button", name="Undo")).to_be_visible()


@pytest.mark.parametrize(
    ("action", "words", "way_back"), [("Pin", "Pinned", "Unpin"), ("Archive", "Archived", "Unarchive")]
)
@pytest.mark.slow
def test_what_the_menu_has_done_is_said_and_can_be_taken_back(
    talk: Talk, action: str, words: str, way_back: str
) -> None:
    menu(talk).get_by_role("button", name=action, exact=True).click()
    expect(talk.page.locator("#toasts")).to_contain_text(f"{words}: A talk")
    expect(menu(talk).get_by_role("button", name=way_back)).to_be_visible()
    talk.page.get_by_role("button", name="Undo").click()
    expect(
        talk.page.locator("#menu").get_by_role("button", name=action, exact=True, include_hidden=True)
    ).to_have_count(1)
    expect(talk.page).to_have_url(re.compile(f"/c/{talk.id}$"))


@pytest.mark.slow
def test_an_emptied_title_restores_the_default_one_and_that_can_be_taken_back(talk: Talk) -> None:
    found = menu(talk)
    found.get_by_label("Title").fill("")
    found.get_by_label("Title").press("Enter")
    expect(talk.page.locator("#toasts")).to_contain_text("Default title restored: Conversation ")
    talk.page.get_by_role("button", name="Undo").click()
    expect(talk.page.get_by_role("heading", level=1)).to_have_text("A talk")
    expect(talk.page.get_by_role("button", name="Undo")).to_have_count(0)


@pytest.mark.slow
def test_the_menu_closes_by_escape(talk: Talk) -> None:
    found = menu(talk)
    talk.page.keyboard.press("Escape")
    expect(found.get_by_role("button", name="Delete")).to_be_hidden()
    expect(found.locator("summary")).to_be_focused()
