"""Every page says in the window's title and icon that a conversation needs an approval."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once


ASKS = re.compile(r"^\(1\) Needs your approval · .*convserver$")


@pytest.mark.parametrize("path", ["/", "/settings", "/search"])
def test_every_page_says_that_a_conversation_asks_until_that_is_decided(
    talk: Talk, context: BrowserContext, path: str
) -> None:
    page = context.new_page()
    page.goto(path)
    icon = page.locator('link[rel="icon"]')
    plain = icon.get_attribute("href")
    talk.say("/approve")
    expect(page).to_have_title(ASKS)
    expect(icon).to_have_attribute("href", re.compile("icon-asking"))
    page.reload()
    expect(page).to_have_title(ASKS)
    talk.asked()
    expect(talk.page).to_have_title(ASKS)
    talk.page.get_by_role("button", name="Reject").click()
    expect(page).not_to_have_title(re.compile("approval"))
    expect(icon).to_have_attribute("href", re.compile(f"{plain}$"))
    expect(talk.page).not_to_have_title(re.compile("approval"))


def test_a_conversation_that_is_deleted_asks_no_more(talk: Talk, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/settings")
    talk.say("/approve")
    expect(page).to_have_title(ASKS)
    talk.site.delete(talk.id)
    expect(page).not_to_have_title(re.compile("approval"))
