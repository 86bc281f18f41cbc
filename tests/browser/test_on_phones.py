"""What is different where the screen is as narrow as a phone's: nothing is hidden, and nothing in the way."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

SLOWLY = "slow: " + " ".join(f"word{number}" for number in range(300))
LEGIBLE_PX = 20


@pytest.fixture
def phone(browse: Browse) -> Page:
    """A page of 390 by 844 with a finger."""
    return browse(viewport={"width": 390, "height": 844}, has_touch=True).new_page()


def test_the_buttons_that_steer_an_agent_say_what_they_do(phone: Page, site: Site) -> None:
    talk = Talk(phone, site, site.create(title="A talk with quite a long title")).open()
    talk.box.fill(SLOWLY)
    phone.get_by_role("button", name="Send").tap()
    for name in ("Pause", "Stop"):
        words = phone.get_by_role("button", name=name).locator("span")
        expect(words).to_have_text(name)
        box = words.bounding_box()
        assert box is not None
        assert box["width"] > LEGIBLE_PX
        assert 0 < box["x"] < 390 - box["width"]
    phone.get_by_role("button", name="Stop", exact=True).tap()
    expect(phone.locator("#agent-state")).to_have_text("Stopped")


def test_the_tabs_of_the_settings_leave_the_screen_to_the_sections(phone: Page, site: Site) -> None:
    phone.goto(f"{site.url}/settings")
    phone.get_by_role("navigation", name="Sections").get_by_role("link", name="Tokens").tap()
    heading = phone.get_by_role("heading", name="API tokens")
    expect(heading).to_be_in_viewport(ratio=1)
    expect(phone.get_by_role("navigation", name="Sections")).not_to_be_in_viewport()


def test_a_long_message_of_a_conversation_found_by_its_title_ends_at_the_screens_edge(
    phone: Page, site: Site
) -> None:
    conversation_id = site.create(title="Unmistakable")
    site.record(conversation_id, [message("one word after the other " * 20)])
    phone.goto(f"{site.url}/search?q=unmistakable")
    row = phone.locator(f'.titles a[href="/c/{conversation_id}"]')
    expect(row.locator(".snippet")).to_contain_text("one word after the other")
    box = row.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
