"""Where one is in the list, which stays so from page to page, and how one moves in it by keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.site import Site
from tests.conftest import once

pytestmark = once

WORD = "quokka"
MANY = 50


@pytest.fixture(scope="module")
def ids(process: Site) -> Iterator[list[str]]:
    """Conversations of one word, more than a page of rows has, the newest first."""
    if not process.is_running:
        process.open()
    ids = [process.create(title=f"{WORD} {number}") for number in range(MANY)][::-1]
    process.kept = frozenset(ids)
    yield ids
    process.kept = frozenset()


@pytest.fixture
def found(page: Page, site: Site, ids: list[str]) -> Page:
    """The first page, whose list shows the conversations of the word alone."""
    page.goto("/")
    page.get_by_label("Find by title").fill(WORD)
    expect(page.locator("#rows > .row")).to_have_count(40)
    expect(page).to_have_url(re.compile(rf"/\?q={WORD}$"))
    return page


def row(page: Page, conversation_id: str) -> Locator:
    return page.locator(f"#row-{conversation_id} > .open")


def top(page: Page) -> float:
    """Return how far the list is scrolled, in pixels."""
    return float(page.locator("#sidebar .scroll").evaluate("(list) => list.scrollTop"))


@pytest.mark.parametrize("number", [30, 45])
@pytest.mark.sampled(1)
def test_opening_a_row_far_below_leaves_the_list_where_it_was(
    found: Page, ids: list[str], number: int
) -> None:
    found.locator("#rows > .more").scroll_into_view_if_needed()
    expect(found.locator("#rows > .row")).to_have_count(MANY)
    row(found, ids[number]).scroll_into_view_if_needed()
    before = top(found)
    row(found, ids[number]).click()
    expect(found.locator("#title")).to_have_text(f"{WORD} {MANY - 1 - number}")
    expect(row(found, ids[number])).to_be_in_viewport()
    assert before > 0
    found.wait_for_function(
        "(top) => Math.abs(document.querySelector('#sidebar .scroll').scrollTop - top) <= 2", arg=before
    )


def test_what_is_looked_for_stays_on_the_conversations_page_and_on_the_way_back(
    found: Page, ids: list[str], site: Site
) -> None:
    other = site.create(title="of another word")
    row(found, ids[3]).click()
    expect(found.locator("#title")).to_have_text(f"{WORD} {MANY - 4}")
    steps: list[Callable[[], object]] = [lambda: None, found.reload, found.go_back, found.go_forward]
    for step in steps:
        step()
        expect(found.get_by_label("Find by title")).to_have_value(WORD)
        expect(row(found, ids[3])).to_be_visible()
        expect(row(found, other)).to_have_count(0)


@pytest.mark.slow
def test_a_filter_that_is_cleared_is_cleared_in_place(found: Page, ids: list[str], site: Site) -> None:
    other = site.create(title="of another word")
    row(found, ids[0]).click()
    expect(found).to_have_url(re.compile(r"list="))
    found.get_by_text("Filters", exact=True).click()
    found.get_by_role("link", name="Clear").click()
    expect(row(found, other)).to_be_visible()
    expect(found.locator("#title")).to_have_text(f"{WORD} {MANY - 1}")
    expect(found).not_to_have_url(re.compile(r"list="))


@pytest.mark.slow
def test_the_way_back_on_a_phone_leads_to_what_was_found(page: Page, found: Page, ids: list[str]) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    row(found, ids[5]).click()
    page.get_by_role("link", name="All conversations").click()
    expect(page).to_have_url(re.compile(rf"/\?q={WORD}$"))
    expect(row(page, ids[5])).to_be_visible()


def test_the_list_is_one_stop_of_the_tab_key_and_the_arrows_move_in_it(found: Page, ids: list[str]) -> None:
    keys = found.keyboard
    keys.press("Shift")  # the first key of a page fetches what moves in the list
    expect(found.locator("#sidebar .scroll [tabindex='0']")).to_have_count(1)
    found.get_by_label("Find by title").press("ArrowDown")
    for key, place in [("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("Home", 0)]:
        keys.press(key)
        expect(row(found, ids[place])).to_be_focused()
    keys.press("Tab")
    assert not found.evaluate("document.activeElement.closest('#sidebar .scroll')")
    keys.press("Shift+Tab")
    keys.press("Enter")
    expect(found.locator("#title")).to_have_text(f"{WORD} {MANY - 1}")


def test_a_rows_menu_opens_by_a_key_and_closes_by_another(found: Page, ids: list[str]) -> None:
    found.keyboard.press("Shift")
    expect(row(found, ids[2])).to_have_attribute("tabindex", "-1")
    row(found, ids[2]).focus()
    found.keyboard.press("m")
    title = found.locator(f"#row-{ids[2]}").get_by_label("Title")
    expect(title).to_be_focused()
    found.keyboard.press("Escape")
    expect(title).to_be_hidden()
    found.keyboard.press("ArrowDown")
    expect(row(found, ids[3])).to_be_focused()
