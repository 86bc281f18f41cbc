"""The command palette, the help and the theme: everything within reach of the keys."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.site import Site
from tests.browser.talk import Held
from tests.conftest import once

pytestmark = once


def test_the_palette_leads_to_a_conversation_by_keys_alone(site: Site, page: Page) -> None:
    _, wanted, _ = begin(site, "Fix the list", "Look at the memory", "Write a parser")
    page.goto("/settings")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Command or conversation")).to_be_focused()
    page.keyboard.type("memory")
    found = options(page).filter(has_text="Look at the memory")
    expect(found).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/c/{wanted}")


@pytest.mark.slow
def test_the_arrows_go_round_and_the_field_names_what_is_chosen(site: Site, page: Page) -> None:
    begin(site, "Fix the list")
    page.goto("/settings")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Command or conversation")
    for name in ("Commands", "Recent conversations"):
        expect(page.get_by_role("group", name=name)).to_be_visible()
    first = options(page).first.get_attribute("id")
    expect(field).to_have_attribute("aria-activedescendant", first or "")
    page.keyboard.press("ArrowUp")
    expect(field).to_have_attribute("aria-activedescendant", options(page).last.get_attribute("id") or "")
    page.keyboard.press("ArrowDown")
    expect(field).to_have_attribute("aria-activedescendant", first or "")


@pytest.mark.slow
def test_escape_closes_the_palette_and_it_remembers_nothing(site: Site, page: Page) -> None:
    page.goto("/new")
    page.get_by_role("textbox", name="Message").press("Control+k")
    page.keyboard.type("nothing has this name")
    expect(options(page)).to_have_text(["Search all messages for “nothing has this name”"])
    page.keyboard.press("Escape")
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Command or conversation")).to_have_value("")


@pytest.mark.slow
def test_what_needs_no_server_is_offered_without_one(site: Site, page: Page) -> None:
    page.goto("/settings")
    with (
        page.expect_request_finished(lambda request: "/web/commands" in request.url),
        page.expect_request_finished(lambda request: "/web/clipboard" in request.url),
    ):
        page.keyboard.press("Shift")
    site.kill()
    page.keyboard.press("Control+k")
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()


@pytest.mark.slow
def test_a_palette_that_is_opened_again_does_nothing_that_was_asked_for_before(
    site: Site, page: Page
) -> None:
    script = Held(page, "**/web/palette*.js")
    page.goto("/settings")
    page.keyboard.press("Control+k")
    page.keyboard.type("keys")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    script.first().continue_()
    expect(options(page).filter(has_text="New conversation")).to_be_visible()
    expect(page).to_have_url("/settings")


@pytest.mark.slow
def test_of_two_conversations_of_one_title_the_chosen_one_stays_chosen(site: Site, page: Page) -> None:
    _, wanted, _ = begin(site, "The same", "The same", "The same")
    page.goto("/settings")
    page.keyboard.press("Control+k")
    same = options(page).filter(has_text="The same")
    expect(same).to_have_count(3)
    found = Held(page, "**/api/native/conversations?**")
    page.keyboard.insert_text("the same")  # at once: a request for a part of it would be given up
    expect(same).to_have_count(4)  # with the search for it
    again = found.first()
    page.keyboard.press("ArrowDown")
    with page.expect_response(again.request.url):
        again.continue_()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/c/{wanted}")


def test_the_palette_offers_what_the_page_of_a_conversation_does(site: Site, page: Page) -> None:
    [conversation] = begin(site, "Fix the list")
    page.goto(f"/c/{conversation}")
    page.keyboard.press("Control+k")
    page.keyboard.type("export")
    expect(options(page).filter(has_text=re.compile("^Export"))).to_have_count(5)
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename.endswith(".md")


@pytest.mark.slow
def test_the_palette_renames_and_deletes_the_conversation_in_front(site: Site, page: Page) -> None:
    [conversation] = begin(site, "Fix the list")
    page.goto(f"/c/{conversation}")
    page.keyboard.press("Control+k")
    page.keyboard.type("rename")
    page.keyboard.press("Enter")
    expect(page.locator("#menu").get_by_label("Title")).to_be_focused()
    page.keyboard.type("Named by the palette")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Named by the palette")
    page.keyboard.press("Control+k")
    page.keyboard.type("delete")
    page.keyboard.press("Enter")
    expect(page.locator("[data-undo]")).to_contain_text("Deleted: Named by the palette")


def test_a_title_is_text_and_nothing_else(site: Site, page: Page) -> None:
    begin(site, "<img src=x onerror=alert(1)>")
    page.goto("/settings")
    page.keyboard.press("Control+k")
    expect(options(page).filter(has_text="<img src=x onerror=alert(1)>")).to_be_visible()


def test_a_theme_holds_at_once_and_after_a_reload(site: Site, page: Page) -> None:
    page.goto("/settings")
    page.keyboard.press("Control+k")
    page.keyboard.type("dark")
    with page.expect_response("**/settings/theme"):
        page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


@pytest.mark.slow
def test_a_theme_that_the_login_swallowed_is_not_called_kept(site: Site, page: Page) -> None:
    page.route("**/settings/theme", lambda route: route.fulfill(status=302, headers={"Location": "/"}))
    page.goto("/settings")
    page.keyboard.press("Control+k")
    page.keyboard.type("dark")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("The theme could not be saved")


@pytest.mark.slow
def test_what_the_browser_does_not_copy_is_not_called_copied(site: Site, page: Page) -> None:
    [conversation] = begin(site, "Fix the list")
    page.goto(f"/c/{conversation}")
    page.evaluate("() => { navigator.clipboard.writeText = async () => { throw Error('Denied.') } }")
    page.keyboard.press("Control+k")
    page.keyboard.type("copy conversation")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("Could not copy")


def test_a_question_mark_shows_the_keys_but_not_while_one_writes(site: Site, page: Page) -> None:
    page.goto("/new")
    page.get_by_role("textbox", name="Message").press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def begin(site: Site, *titles: str) -> list[str]:
    """Begin conversations with these titles; return their ids."""
    return [site.create(title=title) for title in titles]


def options(page: Page) -> Locator:
    return page.locator("#palette").get_by_role("option")
