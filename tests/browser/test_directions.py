"""Scripts that are written from the right to the left: each paragraph goes its own way."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

ARABIC = "مرحبا بكم في هذه المحادثة."

_ROOM = """
(block) => {
  const words = document.createRange();
  words.selectNodeContents(block);
  const [line, box] = [words.getBoundingClientRect(), block.getBoundingClientRect()];
  return { left: line.left - box.left, right: box.right - line.right };
}
"""
"""How much room is left beside a short line, on either side."""

_STOP = """
(block) => {
  const text = document.createTreeWalker(block, NodeFilter.SHOW_TEXT).nextNode();
  const stop = document.createRange();
  stop.setStart(text, text.length - 1);
  stop.setEnd(text, text.length);
  const words = document.createRange();
  words.selectNodeContents(block);
  return stop.getBoundingClientRect().left - words.getBoundingClientRect().left;
}
"""
"""How far the last letter stands from the left end of the line."""


def is_from_right_to_left(block: Locator) -> bool:
    """Say whether a line begins at the right edge of its block, and ends at its own left end."""
    room = block.evaluate(_ROOM)
    return bool(room["right"] < 2 < room["left"] and block.evaluate(_STOP) < 2)


def test_each_paragraph_of_a_message_goes_its_own_way(page: Page, site: Site) -> None:
    talk = Talk(page, site, site.create(title="Both ways"))
    text = f"Hello first\n\n{ARABIC}\n\n- one\n- {ARABIC}\n\n```\ncode\n```"
    site.record(talk.id, [message(text, source="agent"), message(f"{ARABIC}\n\nHello second.")])
    talk.open()
    first, second = (talk.articles.nth(place).locator(".body > p") for place in (0, 1))
    assert [is_from_right_to_left(first.nth(place)) for place in (0, 1)] == [False, True]
    assert [is_from_right_to_left(second.nth(place)) for place in (0, 1)] == [True, False]
    items = talk.articles.first.locator("li")
    assert [is_from_right_to_left(items.nth(place)) for place in (0, 1)] == [False, True]
    assert not is_from_right_to_left(talk.articles.first.locator("pre code"))
