"""Times on the pages: the reader's own, from the first moment that they are seen."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site, message
from tests.browser.talk import Held, Talk
from tests.conftest import once

pytestmark = once

ZONE = "Pacific/Kiritimati"  # 14 hours ahead of UTC
LONG_AGO = "2019-12-31T20:15:00Z"  # 2020 in that zone

_SEEN = """
window.seen = new Set();
(function look() {
  for (const time of document.querySelectorAll("time")) window.seen.add(time.textContent);
  requestAnimationFrame(look);
})();
"""


@pytest.fixture
def far_away(browse: Browse) -> Page:
    """A tab of somebody to whom it is another day, which notes each text of a time that was drawn."""
    page = browse(timezone_id=ZONE).new_page()
    page.add_init_script(_SEEN)
    return page


def local(site: Site, conversation_id: str, seq: int) -> str:
    """Return how the time of an event of this year is written in that zone."""
    timestamp = site.events(conversation_id, after=seq - 1)[0]["timestamp"]
    moment = datetime.fromisoformat(timestamp).astimezone(ZoneInfo(ZONE))
    return f"{moment.day} {moment:%b, %H:%M}"


def is_never_utc(page: Page) -> bool:
    """Say whether no time was drawn as the server wrote it."""
    return not page.evaluate("[...window.seen].some((text) => text.includes('UTC'))")


def test_messages_show_the_readers_time_before_any_other_script_runs(site: Site, far_away: Page) -> None:
    conversation_id = site.create()
    site.record(conversation_id, [message("Good morning")])
    scripts = Held(far_away, re.compile("/web/(app|conversation|htmx)[^/]*[.]js"))
    far_away.goto(f"{site.url}/c/{conversation_id}", wait_until="commit")
    time = far_away.locator("#e0 time")
    expect(time).to_have_text(local(site, conversation_id, 0))
    expect(time).to_have_attribute("title", re.compile("GMT[+]14"))
    scripts.first()
    assert is_never_utc(far_away)


@pytest.mark.slow
def test_messages_that_come_later_show_the_readers_time_when_they_are_drawn(
    site: Site, far_away: Page
) -> None:
    talk = Talk(far_away, site, site.create()).open()
    talk.say("Good morning")
    talk.answered("You said: Good morning")
    shown = far_away.locator("#events article.message.agent time")
    expect(shown).to_have_text(
        local(site, talk.id, int(shown.locator("xpath=ancestor::article").get_attribute("data-seq") or 0))
    )
    assert is_never_utc(far_away)


@pytest.mark.slow
def test_a_time_of_another_year_says_which_in_the_readers_zone(site: Site, far_away: Page) -> None:
    conversation_id = site.create()
    site.record(conversation_id, [{**message("An old needle-in-time"), "timestamp": LONG_AGO}])
    far_away.goto(f"{site.url}/c/{conversation_id}")
    expect(far_away.locator("#e0 time")).to_have_text("1 Jan 2020, 10:15")
    far_away.goto(f"{site.url}/search?q=needle-in-time")
    expect(far_away.locator("#hits time")).to_have_text("1 Jan 2020, 10:15")


@pytest.mark.slow
def test_the_days_of_a_search_are_those_of_the_readers_zone(site: Site, far_away: Page) -> None:
    conversation_id = site.create()
    site.record(conversation_id, [{**message("An old thimble-in-time"), "timestamp": LONG_AGO}])
    far_away.goto(f"{site.url}/search?q=thimble-in-time")
    far_away.locator("#main").get_by_text("Filters").click()
    for day, count in (("2020-01-01", 1), ("2019-12-31", 0)):
        far_away.get_by_label("Since").fill(day)
        far_away.get_by_label("Until").fill(day)
        far_away.get_by_role("button", name="Search").click()
        expect(far_away.get_by_label("Since")).to_have_value(day)
        expect(far_away.locator("#hits time")).to_have_count(count)


@pytest.mark.slow
def test_the_filters_of_a_search_are_of_one_height(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/search?q=x&kind=error")
    fields = page.locator(".narrowing :is(input, select)")
    heights = fields.evaluate_all("all => all.map((each) => each.getBoundingClientRect().height)")
    assert len(heights) == 8
    assert len(set(heights)) == 1


@pytest.mark.slow
def test_deleted_conversations_show_the_readers_time(site: Site, far_away: Page) -> None:
    conversation_id = site.create(title="Deleted far away")
    site.delete(conversation_id)
    far_away.goto(f"{site.url}/deleted")
    row = far_away.locator(".things li").filter(has_text="Deleted far away")
    expect(row.locator("time")).to_have_count(2)  # when, and until when
    expect(row).not_to_contain_text("UTC")
    assert is_never_utc(far_away)


def test_without_scripts_times_say_that_they_are_utc(site: Site, browse: Browse) -> None:
    conversation_id = site.create()
    site.record(conversation_id, [message("Good morning")])
    page = browse(java_script_enabled=False, timezone_id=ZONE).new_page()
    page.goto(f"{site.url}/c/{conversation_id}")
    expect(page.locator("#e0 time")).to_have_text(re.compile(r"^\d+ \w{3} \d{4}, \d\d:\d\d UTC$"))
