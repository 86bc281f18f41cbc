"""The connection as people see it: the line is true, and what breaks is mended without a reload."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.people.clients import WAIT_S

pytestmark = once

SLOWLY = "slow: " + " ".join(f"word{number}" for number in range(30))
ASKED_FOR_EVENTS = re.compile(r"/events\?after=")


@pytest.mark.no_second_try
def test_a_server_killed_in_mid_answer_loses_and_doubles_nothing(talk: Talk) -> None:
    talk.say(SLOWLY)
    expect(talk.streaming).to_contain_text("word3")
    talk.site.kill()
    expect(talk.line).to_contain_text(re.compile(r"Reconnecting: .+ since .+\. Retrying in \d+ s"))
    talk.site.open()
    talk.is_connected(within_s=2 * WAIT_S)  # after a slow start the next try is up to 19 s away
    talk.say("and now?")
    talk.answered("You said: and now?")
    events = talk.site.events(talk.id)
    assert [each["seq"] for each in events] == list(range(len(events)))
    assert talk.site.said(talk.id) == [SLOWLY, "and now?"]
    shown = talk.seqs()
    assert shown == sorted(set(shown))
    talk.page.reload()
    talk.is_connected()
    assert talk.seqs() == shown


@pytest.mark.no_second_try
def test_what_is_typed_while_the_server_is_killed_goes_out_once(talk: Talk) -> None:
    talk.box.press_sequentially("before ")
    talk.site.kill()
    talk.box.press_sequentially("and after")
    talk.box.press("Enter")
    expect(talk.delivery("before and after")).to_have_text("Waiting to be sent")
    expect(talk.line).to_contain_text("1 waiting to be sent")
    expect(talk.box).to_be_focused()
    talk.box.press_sequentially("a half sent")
    talk.site.open()
    talk.hurry()
    talk.answered("before and after")
    talk.is_connected()
    assert talk.site.said(talk.id) == ["before and after"]
    expect(talk.box).to_have_value("a half sent")


def test_the_line_says_offline_and_then_connected(talk: Talk, context: BrowserContext) -> None:
    context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    context.set_offline(False)
    talk.is_connected()


@pytest.mark.no_second_try
def test_a_page_that_comes_back_shows_what_it_missed(talk: Talk, context: BrowserContext) -> None:
    talk.site.record(talk.id, [message(f"before {number}") for number in range(3)])
    expect(talk.articles).to_have_count(3)
    context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    talk.site.record(talk.id, [message(f"missed {number}") for number in range(400)], key="missed")
    talk.page.evaluate(_NOTE_WORDS)
    context.set_offline(False)
    expect(talk.articles.last).to_contain_text("missed 399")
    talk.is_connected()
    words = talk.page.evaluate("window.words")
    assert any(re.fullmatch(r"Catching up: \d+ of 403", each) for each in words), words
    assert talk.seqs() == sorted(set(talk.seqs()))
    expect(talk.articles.last).to_be_in_viewport()


@pytest.mark.slow
def test_events_that_could_not_be_fetched_are_shown_after_the_next_connection(
    talk: Talk, context: BrowserContext
) -> None:
    talk.page.route(ASKED_FOR_EVENTS, lambda route: route.abort(), times=1)
    with talk.page.expect_request(ASKED_FOR_EVENTS):
        talk.site.record(talk.id, [message("was in the log all the time")])
    context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    context.set_offline(False)
    expect(talk.articles).to_have_text(re.compile("was in the log all the time"))


def test_a_conversation_that_is_deleted_elsewhere_says_so(talk: Talk) -> None:
    talk.site.delete(talk.id)
    expect(talk.line).to_have_text("Disconnected: The conversation was deleted.")


@pytest.mark.slow
def test_what_counts_down_is_not_read_aloud(talk: Talk) -> None:
    shown, read_anew = talk.page.evaluate(_COUNT_DOWN)
    assert re.search(r"since .+\. Retrying in \d+ s · 1 waiting to be sent$", shown[0])
    assert len(set(shown)) == len(shown)
    assert read_anew == 0


def test_a_conversation_that_never_was_has_a_page_that_says_so(page: Page, site: Site) -> None:
    answer = page.goto(f"/c/never-{site.port}")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", name="Conversation not found")).to_be_visible()


# The page's own class, told of two moments of one state: the lines, and how much of them is said anew.
_COUNT_DOWN = """
async () => {
  const names = performance.getEntriesByType("resource").map(({ name }) => name);
  const { ConnectionLine } = await import(names.find((name) => name.includes("/web/connection")));
  const element = document.querySelector("#connection").cloneNode(true);
  const line = new ConnectionLine(element, { onTry() {} });
  const changes = new MutationObserver(() => {});
  changes.observe(element, { childList: true, characterData: true, subtree: true });
  const since = Date.now();
  line.showWaiting(1);
  const shown = [9000, 5000].map((wait) => {
    changes.takeRecords();
    line.show({ name: "waiting", since, why: "it is gone", nextTry: since + wait });
    return element.querySelector(".words").textContent;
  });
  const hidden = element.querySelector(".words [aria-hidden]");
  return [shown, changes.takeRecords().filter(({ target }) => !hidden.contains(target)).length];
}
"""

_NOTE_WORDS = """
() => {
  const line = document.querySelector("#connection .words");
  window.words = [];
  new MutationObserver(() => window.words.push(line.textContent)).observe(line, { childList: true });
}
"""
