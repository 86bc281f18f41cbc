"""The first minute: what a page loads, and how soon somebody has an answer."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Response, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site, message
from tests.browser.talk import Held, Talk
from tests.conftest import once

pytestmark = once

FIRST_MAX_BYTES = 80_000
OWN_MAX_BYTES = 130_000
VENDORED = "htmx.js"

# IndexedDB as it is where it is `denied`, or `silent`; who waits for it does not wait long.
_KEEP_NOTHING = """
const later = setTimeout;
window.setTimeout = (act, wait) => later(act, wait === 5000 ? 50 : wait);
IDBFactory.prototype.open = () => {
  if ("%s" === "denied") throw new DOMException("Denied.", "SecurityError");
  return {};
};
"""

LOADS = 3
"""On a busy machine a page may be painted before all of it is there: one of so many first visits is calm."""
_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    const from = entry.sources.map(({ node }) => node?.id || node?.className || node?.nodeName);
    window.shifts.push([entry.value, ...from]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""


def test_the_first_answer_is_three_actions_away(page: Page) -> None:
    page.goto("/")  # one
    box = page.get_by_label("Message", exact=True)
    expect(box).to_be_focused()
    page.keyboard.type("Good morning")  # two
    page.keyboard.press("Enter")  # three
    expect(page.locator("#events article.message.agent")).to_contain_text("You said: Good morning")
    expect(page.locator("#events article.message.user")).to_have_count(1)


def test_the_first_page_says_what_this_is(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_text("convserver keeps your conversations with AI agents")).to_be_visible()
    expect(page.get_by_role("group", name="Try the built-in demo agent.")).to_be_visible()


@pytest.mark.parametrize("place", ["the first page", "an empty conversation"])
@pytest.mark.parametrize("way", ["click", "key"])
def test_a_command_of_the_demo_agent_is_tried_by_one_action(
    page: Page, site: Site, place: str, way: str
) -> None:
    page.goto("/" if place == "the first page" else f"/c/{site.create()}")
    button = page.get_by_role("button", name="/tool calls a pretend tool")
    if way == "click":
        button.click()
    else:
        button.press("Enter")
    expect(page.locator("#events article.message.user")).to_contain_text("/tool")
    expect(page.locator("#events article.message.agent")).to_contain_text("It is noon on Friday")


@pytest.mark.slow
def test_a_command_that_is_tried_before_the_stored_draft_has_come_is_sent(page: Page) -> None:
    draft = Held(page, "**/api/native/draft", times=1)
    creation = Held(page, "**/api/native/conversations", times=1)
    page.goto("/")
    page.get_by_role("button", name="/tool calls a pretend tool").click()
    creating = creation.first()
    draft.first().fulfill(json={"text": "", "images": [], "version": 1_000_000})
    creating.continue_()
    expect(page.locator("#events article.message.user")).to_contain_text("/tool")


def test_a_command_is_not_offered_while_one_writes(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Message", exact=True).fill("Good morning")
    expect(page.get_by_role("button", name="/tool")).to_be_hidden()


@pytest.mark.slow
def test_a_first_message_waits_in_the_box_while_the_server_is_gone(page: Page, site: Site) -> None:
    page.goto("/")
    box = page.get_by_label("Message", exact=True)
    site.kill()
    box.fill("Nothing of this is lost")
    box.press("Enter")
    expect(page.locator("#composer .note")).to_contain_text("Can't reach the server")
    expect(box).to_have_value("Nothing of this is lost")
    site.open()
    expect(page.locator("#events article.message.user")).to_contain_text("Nothing of this is lost")


@pytest.mark.parametrize("way", ["denied", "silent"])
@pytest.mark.slow
def test_a_first_message_goes_out_where_the_browser_keeps_none(page: Page, way: str) -> None:
    page.add_init_script(_KEEP_NOTHING % way)
    page.goto("/new")
    page.keyboard.type("Kept by nobody")
    page.keyboard.press("Enter")
    expect(page.locator("#events article.message.agent")).to_contain_text("You said: Kept by nobody")
    expect(page.locator("#events article.message.user")).to_have_count(1)


def test_a_first_message_that_goes_nowhere_is_back_in_the_box(page: Page) -> None:
    page.add_init_script(_KEEP_NOTHING % "denied")
    page.route("**/events", lambda route: route.abort())
    page.goto("/new")
    page.keyboard.type("Kept by nobody")
    page.keyboard.press("Enter")
    expect(page.locator("#composer .note")).to_contain_text("Your message could not be sent")
    expect(page.get_by_label("Message", exact=True)).to_have_value("Kept by nobody")


@pytest.mark.slow
def test_a_page_that_one_comes_back_to_begins_another_conversation(page: Page) -> None:
    page.goto("/new")
    begun = page.locator("#composer [name=id]").input_value()
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect(page.locator("#composer [name=id]")).not_to_have_value(begun)


def test_a_first_page_brings_little_script_and_style(page: Page, site: Site) -> None:
    conversation_id = site.create()
    for path, most in (("/", FIRST_MAX_BYTES), (f"/c/{conversation_id}", OWN_MAX_BYTES)):
        sizes = _loaded(page, path)
        own = sum(size for name, size in sizes.items() if name != VENDORED)
        assert own < most, (own, sizes)


@pytest.mark.slow
def test_what_code_looks_like_is_fetched_once_there_is_code(talk: Talk) -> None:
    code = talk.articles.locator(".code pre")
    talk.site.record(talk.id, [message("```python\nx = 1\n```", source="agent")])
    expect(code).to_have_css("overflow-x", "auto")


@pytest.mark.slow
def test_what_code_looks_like_comes_with_it_where_no_script_runs(site: Site, browse: Browse) -> None:
    conversation_id = site.create()
    site.record(conversation_id, [message("```python\nx = 1\n```", source="agent")])
    page = browse(java_script_enabled=False).new_page()
    page.goto(f"{site.url}/c/{conversation_id}")
    expect(page.locator(".code pre")).to_have_css("overflow-x", "auto")


def test_nothing_moves_while_a_page_loads(site: Site, browse: Browse, browse_anew: Browse) -> None:
    conversation_id = site.create(title="Long enough to be cut off where there is little room for a title")
    _await_quiet(browse().new_page())
    for path in ("/", f"/c/{conversation_id}"):
        visits: list[list[Any]] = []
        while not visits or sum(shift[0] for shift in visits[-1]) >= 0.01:
            assert len(visits) < LOADS, visits
            visits.append(_shifts(browse_anew().new_page(), path))


def _shifts(page: Page, path: str) -> list[Any]:
    """Visit a page for the first time; return by how much what moved, until it was connected and drawn."""
    page.add_init_script(_SHIFTS)
    page.goto(path)
    if path != "/":
        expect(page.locator("#connection .words")).to_have_text("Connected")
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    shifts: list[Any] = page.evaluate("window.shifts")
    return shifts


def _await_quiet(page: Page) -> None:
    """Wait for the agents of earlier tests, since who still answers moves the row of a conversation."""
    page.goto("/")
    expect(page.locator(".dot.running, .dot.starting")).to_have_count(0)


def _loaded(page: Page, path: str) -> dict[str, int]:
    """Return the sizes of the scripts and styles of a page, uncompressed, by name."""
    responses: list[Response] = []
    page.on("response", lambda response: responses.append(response))
    page.goto(path)
    page.wait_for_load_state("networkidle")
    return {
        urlsplit(each.url).path.rpartition("/")[2]: len(each.body())
        for each in responses
        if "/static/web/" in each.url
    }
