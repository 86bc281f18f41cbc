"""Messages, code and addresses of events go into the clipboard by one button each."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

WRITTEN = "A **bold** word\n\n```python\nx = 1\n```"


@pytest.fixture
def context(browse: Browse) -> BrowserContext:
    """A browser whose clipboard tests may read."""
    return browse(permissions=["clipboard-read", "clipboard-write"])


@pytest.fixture
def talk(context: BrowserContext, site: Site) -> Talk:
    """A conversation with one message in Markdown, open."""
    talk = Talk(context.new_page(), site, site.create())
    site.record(talk.id, [message(WRITTEN, source="agent")])
    return talk.open()


def clipboard(talk: Talk) -> str:
    return str(talk.page.evaluate("navigator.clipboard.readText()"))


def test_a_message_is_copied_as_it_was_written(talk: Talk) -> None:
    button = talk.articles.get_by_role("button", name="Copy message")
    talk.articles.hover()
    button.click()
    expect(talk.page.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
    assert clipboard(talk) == WRITTEN


@pytest.mark.slow
def test_a_block_of_code_is_copied_without_the_rest(talk: Talk) -> None:
    talk.articles.get_by_role("button", name="Copy code").click()
    expect(talk.page.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
    assert clipboard(talk) == "x = 1\n"


@pytest.mark.slow
def test_the_menu_of_an_event_copies_a_link_that_leads_to_it(talk: Talk) -> None:
    talk.articles.get_by_label("More about this event").click()
    talk.articles.get_by_role("link", name="Copy link").click()
    expect(talk.page.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
    assert clipboard(talk) == f"{talk.site.url}/c/{talk.id}#e0"


@pytest.mark.slow
def test_the_buttons_appear_with_the_focus_and_are_always_seen_where_nothing_hovers(
    talk: Talk, browse: Browse
) -> None:
    tools = talk.articles.locator(".tools")
    talk.page.mouse.move(0, 0)
    expect(tools).to_have_css("opacity", "0")
    tools.locator(".copy").focus()
    expect(tools).to_have_css("opacity", "1")
    touched = Talk(browse(has_touch=True, is_mobile=True).new_page(), talk.site, talk.id).open()
    expect(touched.articles.locator(".tools")).to_have_css("opacity", "1")
