"""The same conversation in two tabs, and on two devices."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Browse
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once


def test_two_tabs_show_the_same(talk: Talk, another_tab: Talk) -> None:
    # Long enough to be seen while it grows, however seldom one looks.
    talk.say("slow: from the first tab " + " ".join(f"word{number}" for number in range(30)))
    expect(another_tab.streaming).to_contain_text("from the")
    talk.answered("from the first tab")
    another_tab.answered("from the first tab")
    another_tab.say("from the second tab")
    talk.answered("You said: from the second tab")
    another_tab.answered("You said: from the second tab")
    assert talk.seqs() == another_tab.seqs()
    assert _texts(talk.page) == _texts(another_tab.page)


def test_a_title_changed_elsewhere_is_shown_at_once(talk: Talk, another_tab: Talk) -> None:
    talk.site.rename(talk.id, "Another <b>title</b>")
    for each in (talk, another_tab):
        expect(each.page.get_by_role("heading", level=1)).to_have_text("Another <b>title</b>")
        expect(each.page).to_have_title(re.compile(r"Another <b>title</b> · convserver$"))


def test_what_one_device_has_answered_the_other_sees(talk: Talk, browse: Browse) -> None:
    phone = Talk(browse(viewport={"width": 390, "height": 844}).new_page(), talk.site, talk.id).open()
    talk.say("/approve")
    phone.asked()
    phone.page.get_by_role("button", name="Approve").click()
    expect(phone.approval).to_be_hidden()
    expect(talk.approval).to_be_hidden()
    talk.answered("Done.")


@pytest.mark.slow
def test_a_phone_shows_a_long_title_and_the_controls_side_by_side(talk: Talk, browse: Browse) -> None:
    talk.site.rename(talk.id, "A title that is by far too long for a telephone, and says so at length")
    phone = Talk(browse(viewport={"width": 390, "height": 844}).new_page(), talk.site, talk.id).open()
    talk.say("slow: " + " ".join(f"word{number}" for number in range(40)))
    for name in ("Pause", "Stop"):
        expect(phone.page.get_by_role("button", name=name, exact=True)).to_be_in_viewport(ratio=1)
    expect(phone.page.get_by_label("More about this conversation")).to_be_in_viewport(ratio=1)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390


def _texts(page: Page) -> list[str]:
    return page.locator("#events article .body").all_inner_texts()
