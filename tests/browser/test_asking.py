"""Every page says in the window's title and icon that a conversation needs an approval."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once


PATHS = ("/", "/settings", "/search")
ASKS = re.compile(r"^\(1\) Needs your approval · .*convserver$")


def test_every_page_says_that_a_conversation_asks_until_that_is_decided(
    talk: Talk, context: BrowserContext
) -> None:
    pages = [context.new_page() for _ in PATHS]
    for page, path in zip(pages, PATHS, strict=True):
        page.goto(path)
    plain = [icon(page).get_attribute("href") for page in pages]
    talk.say("/approve")
    for page in pages:
        expect(page).to_have_title(ASKS)
        expect(icon(page)).to_have_attribute("href", re.compile("icon-asking"))
        page.reload()
        expect(page).to_have_title(ASKS)
    talk.asked()
    expect(talk.page).to_have_title(ASKS)
    talk.page.get_by_role("button", name="Reject").click()
    for page, href in zip(pages, plain, strict=True):
        expect(page).not_to_have_title(re.compile("approval"))
        expect(icon(page)).to_have_attribute("href", re.compile(f"{href}$"))
    expect(talk.page).not_to_have_title(re.compile("approval"))


def test_a_conversation_that_is_deleted_asks_no_more(talk: Talk, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/settings")
    talk.say("/approve")
    expect(page).to_have_title(ASKS)
    talk.site.delete(talk.id)
    expect(page).not_to_have_title(re.compile("approval"))


def icon(page: Page) -> Locator:
    """Return what names the icon of the window."""
    return page.locator('link[rel="icon"]')
