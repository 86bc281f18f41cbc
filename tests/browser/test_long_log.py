"""A conversation of ten thousand events: it opens like a short one, and stands still under the eye."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.people.clients import WAIT_S

pytestmark = once

COUNT = 10_000
RENDERED_MAX = 60
ARTICLES_MAX = 200
STILL_PX = 2.0
NEEDLE = "numbat"


@pytest.fixture(scope="module")
def long_id(process: Site) -> Iterator[str]:
    """The id of the long conversation, which the first test that needs it makes."""
    long_id = uuid4().hex
    process.kept = frozenset([long_id])
    yield long_id
    process.kept = frozenset()


@pytest.fixture
def long(site: Site, page: Page, long_id: str) -> Talk:
    """Ten thousand events, a page of them in a tab, not opened yet."""
    if not site.has(long_id):
        site.create(id=long_id, title="Ten thousand events")
        site.record(long_id, [_event(number) for number in range(COUNT)])
    return Talk(page, site, long_id)


def test_it_opens_on_the_newest_events(long: Talk) -> None:
    long.open()
    assert long.articles.count() <= RENDERED_MAX
    assert long.seqs()[-1] == COUNT - 1
    expect(long.articles.last).to_be_in_viewport()


def test_what_is_looked_at_stands_still_while_earlier_events_come(long: Talk) -> None:
    long.open()
    for _ in range(8):
        first = long.seqs()[0]
        long.page.evaluate(_WATCH_NEXT_STRETCH, WAIT_S * 1000)
        long.scroll_to("top")
        assert abs(long.page.evaluate("window.moved")) <= STILL_PX
        seqs = long.seqs()
        assert seqs[0] < first
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        assert len(seqs) <= ARTICLES_MAX


def test_what_is_looked_at_stands_still_while_later_events_come(long: Talk) -> None:
    long.open("?around=5000#e5000")
    for _ in range(5):
        last = long.seqs()[-1]
        long.page.evaluate(_WATCH_NEXT_STRETCH, WAIT_S * 1000)
        long.scroll_to("end")
        assert abs(long.page.evaluate("window.moved")) <= STILL_PX
        seqs = long.seqs()
        assert seqs[-1] > last
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        assert len(seqs) <= ARTICLES_MAX


@pytest.mark.slow
def test_the_beginning_stands_still_when_it_is_reached(long: Talk) -> None:
    long.open("?around=60#e60")
    long.page.evaluate(_WATCH_NEXT_STRETCH, WAIT_S * 1000)
    long.scroll_to("top")
    assert abs(long.page.evaluate("window.moved")) <= STILL_PX
    assert long.seqs()[0] == 0
    expect(long.page.get_by_role("link", name="Earlier events")).to_be_hidden()


@pytest.mark.slow
def test_a_result_far_behind_its_call_stays_when_the_call_goes(site: Site, page: Page) -> None:
    conversation_id = site.create(title="A slow command")
    of_call = {"tool_call_metadata": {"tool_call_id": "slow", "function_name": "execute_bash"}}
    events = [message(f"number {number}") for number in range(400)]
    events[20] = {"action": "run", "source": "agent", "args": {"command": "sleep 99"}, **of_call}
    events[60] = {"observation": "run", "source": "agent", "content": "It has slept.", **of_call}
    site.record(conversation_id, events)
    talk = Talk(page, site, conversation_id).open("?around=20")
    result = page.get_by_text("It has slept.")
    talk.scroll_to("end")
    expect(page.locator("#e20").get_by_text("It has slept.")).to_have_count(1)
    for _ in range(20):
        if not page.locator("#e20").count():
            break
        last = talk.seqs()[-1]
        talk.scroll_to("end")
        expect(page.locator(f"#e{last + 1}")).to_have_count(1)
    expect(page.locator("#e20")).to_have_count(0)
    expect(result).to_have_count(1)
    assert talk.seqs() == sorted(talk.seqs())


@pytest.mark.parametrize("place", ["?around=5000#e5000", "#e5000"])
@pytest.mark.sampled(1)
def test_an_address_leads_to_an_event(long: Talk, place: str) -> None:
    long.open(place)
    expect(long.page.locator("#e5000")).to_be_in_viewport()
    expect(long.page.locator("#e5000")).to_contain_text("Message number 5000")
    assert long.articles.count() <= RENDERED_MAX
    expect(long.to_end).to_have_text("Newest (4974 more)")


@pytest.mark.slow
def test_the_newest_are_one_click_away(long: Talk) -> None:
    long.open("?around=5000#e5000")
    long.to_end.click()
    expect(long.articles.last).to_contain_text(f"Message number {COUNT - 1}")
    expect(long.articles.last).to_be_in_viewport()
    expect(long.to_end).to_be_hidden()


def test_what_comes_while_one_reads_above_does_not_move_the_page(talk: Talk) -> None:
    talk.site.record(talk.id, [_event(number) for number in range(49)])
    expect(talk.articles).to_have_count(49)
    talk.scroll_to("top")
    expect(talk.to_end).to_be_visible()
    before = talk.offset("#e3")
    talk.site.record(talk.id, [message(f"news {number}") for number in range(3)], key="news")
    expect(talk.to_end).to_have_text("Newest (3 more)")
    assert abs(talk.offset("#e3") - before) <= STILL_PX
    talk.to_end.click()
    expect(talk.articles.last).to_contain_text("news 2")
    expect(talk.articles.last).to_be_in_viewport()


def test_an_end_that_is_looked_at_is_followed_however_fast_it_grows(talk: Talk) -> None:
    talk.site.record(talk.id, [_event(number) for number in range(30)])
    for number in range(40):
        talk.site.record(talk.id, [message(f"live {number}")], key=f"live-{number}")
    expect(talk.articles.last).to_contain_text("live 39")
    expect(talk.articles.last).to_be_in_viewport()
    expect(talk.to_end).to_be_hidden()
    seqs = talk.seqs()
    assert seqs == list(range(seqs[0], 70))


@pytest.mark.slow
def test_an_end_that_is_looked_at_is_followed_though_the_foot_grows_just_when_it_is_scrolled_to(
    talk: Talk,
) -> None:
    talk.site.record(talk.id, [_event(number) for number in range(30)])
    expect(talk.articles.last).to_contain_text("Message number 29")
    talk.page.evaluate(_GROW_THE_FOOT, 200)
    talk.site.record(talk.id, [message("the newest")], key="newest")
    expect(talk.articles.last).to_contain_text("the newest")
    expect(talk.articles.last).to_be_in_viewport()
    expect(talk.to_end).to_be_hidden()


@pytest.mark.slow
def test_an_end_that_could_not_be_fetched_is_fetched_again_though_nothing_else_comes(talk: Talk) -> None:
    address = re.compile(r"/events\?after=")
    talk.page.route(address, lambda route: route.abort(), times=1)
    with talk.page.expect_event("requestfailed", lambda request: bool(address.search(request.url))):
        talk.site.record(talk.id, [message("the last answer")])
    expect(talk.articles).to_have_text(re.compile("the last answer"))


@pytest.mark.slow
def test_events_that_show_little_leave_no_page_empty(page: Page, site: Site) -> None:
    hidden = {"observation": "agent_state_changed", "content": "", "extras": {"agent_state": "running"}}
    talk = Talk(page, site, site.create(title="Little to see"))
    site.record(talk.id, [message("Long ago"), *([{"source": "environment", **hidden}] * 200)])
    talk.open()
    expect(talk.articles.first).to_contain_text("Long ago")


@pytest.mark.parametrize("way", ["the page", "the keys"])
@pytest.mark.sampled(1)
def test_a_word_of_one_event_is_found_and_shown(long: Talk, way: str) -> None:
    if way == "the page":
        long.page.goto(f"/search?q={NEEDLE}")
        long.page.locator(f'main a[href*="{long.id}"][href$="#e9000"]').first.click()
    else:
        long.page.goto("/settings")
        long.page.keyboard.press("Control+k")
        long.page.keyboard.type(NEEDLE)
        search = long.page.get_by_role("option", name="Search all messages for")
        expect(search).to_have_attribute("aria-selected", "true")
        long.page.keyboard.press("Enter")
        hit = long.page.locator(f'main a[href*="{long.id}"][href$="#e9000"]').first
        hit.focus()
        hit.press("Enter")
    expect(long.page.locator("#e9000")).to_contain_text(NEEDLE)
    expect(long.page.locator("#e9000")).to_be_in_viewport()
    assert long.articles.count() <= RENDERED_MAX


def _event(number: int) -> dict[str, object]:
    """Return one of the long conversation; one has a word that no other has."""
    source = "user" if number % 2 == 0 else "agent"
    lines = "Some **text** with `code` to read.\n\n" * (1 + number % 4)
    return message(
        f"Message number {number}{' ' + NEEDLE if number == 9000 else ''}\n\n{lines}", source=source
    )


# Of the scrolling the page hears with the next frame, when there is less room for the log already.
_GROW_THE_FOOT = """
(pixels) => {
  const log = document.querySelector("#log");
  log.scrollTop = 0;
  log.scrollTop = log.scrollHeight;
  document.querySelector("#conversation .foot").style.paddingTop = `${pixels}px`;
}
"""

# How far the event that is at the edge of the window moves when a stretch of the log comes in: in time,
# since a promise that is awaited from outside has no limit of its own.
_WATCH_NEXT_STRETCH = """
(waitMs) => {
  const log = document.querySelector("#log");
  const events = document.querySelector("#events");
  let seen, at;
  const look = () => {
    const top = log.getBoundingClientRect().top;
    seen = [...events.querySelectorAll("article")].find((each) => each.getBoundingClientRect().bottom > top);
    at = seen.getBoundingClientRect().top;
  };
  const stop = new AbortController();
  log.addEventListener("scroll", look, { signal: stop.signal });
  look();
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("No stretch came in.")), waitMs));
  const moved = new Promise((done) => new MutationObserver((_, observer) => {
    observer.disconnect();
    stop.abort();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      done(seen.isConnected ? seen.getBoundingClientRect().top - at : NaN);
    }));
  }).observe(events, { childList: true, subtree: true }));
  window.moved = Promise.race([moved, late]);
}
"""
