"""What is heard later than usual, on a slow line or a busy machine, is taken for what it is."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Browse
from tests.browser.line import Line, never
from tests.browser.site import Site, message
from tests.browser.talk import Held, Talk
from tests.conftest import once

pytestmark = once

SLOWLY = "slow: " + " ".join(f"word{number}" for number in range(20))
MORE_SLOWLY = "slow: " + " ".join(f"word{number}" for number in range(200))
"""For answers that no test waits for to the end."""


def test_a_pause_that_is_acknowledged_when_it_is_over_is_over(page: Page, site: Site) -> None:
    line = Line(page, keeps=lambda frame: frame["type"] == "ack" and str(frame["id"]).startswith("pause-"))
    talk = Talk(page, site, site.create()).open()
    state = talk.page.locator("#agent-state")
    talk.say(SLOWLY)
    expect(talk.page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    talk.page.keyboard.press("Escape")
    talk.page.keyboard.press("p")
    expect(state).to_have_text("Paused")
    line.until(lambda frame: True)
    line.let_go()
    talk.site.rename(talk.id, "Heard after the ack")
    expect(talk.page.get_by_role("heading", level=1)).to_have_text("Heard after the ack")
    expect(state).to_have_text("Paused")


def test_the_last_words_of_an_answer_that_is_stored_show_nothing_twice(talk: Talk) -> None:
    talk.say("Hello")
    talk.answered("You said: Hello")
    assert talk.page.evaluate(_LATE_WORDS) == [0, 1]


@pytest.mark.slow
def test_a_draft_that_is_written_elsewhere_while_one_is_sent_is_taken(talk: Talk, browse: Browse) -> None:
    there = Talk(browse().new_page(), talk.site, talk.id).open()
    talk.page.evaluate(_HEAR_OF_VERSION_2)
    held = Held(talk.page, "**/draft", times=1)
    talk.box.fill("begun here")
    putting = held.first()
    answer = putting.fetch()
    expect(there.box).to_have_value("begun here")
    there.box.fill("begun here, ended there")
    talk.page.evaluate("window.heard")
    putting.fulfill(response=answer)
    expect(talk.box).to_have_value("begun here, ended there")


@pytest.mark.slow
def test_a_command_finds_its_button_in_a_menu_that_is_new_by_then(talk: Talk) -> None:
    page = talk.page
    held = Held(page, "**/rename")
    page.keyboard.press("Control+k")
    page.keyboard.type("rename")
    page.keyboard.press("Enter")
    expect(page.locator("#menu").get_by_label("Title")).to_be_focused()
    page.keyboard.type("Renamed")
    page.keyboard.press("Enter")
    renaming = held.first()
    page.evaluate("document.querySelector('#menu').dataset.old = ''")
    page.keyboard.press("Control+k")
    page.keyboard.type("delete")
    expect(page.get_by_role("option", name="Delete", selected=True)).to_be_visible()
    renaming.continue_()
    expect(page.locator("#menu[data-old]")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.locator("[data-undo]")).to_contain_text("Deleted: Renamed")


@pytest.mark.slow
def test_a_message_is_answered_by_the_turn_that_has_read_it_alone(page: Page, site: Site) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create()).open()
    line.keeps = lambda frame: (
        frame["type"] in ("delta", "answer", "receipt")
        or frame.get("source") == "agent"
        or frame.get("kind") == "turn"
        or (frame["type"] == "conversation" and any(map(_tells_of_an_end, [*line.kept, frame])))
    )
    talk.say(SLOWLY)
    expect(talk.page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    talk.say("and this")
    expect(talk.delivery("and this")).to_have_text("Queued until this turn ends")
    turn = line.until(lambda frame: frame.get("kind") == "turn")
    line.let_go(turn)
    expect(talk.delivery("word1 ")).to_contain_text("Answered")
    expect(talk.delivery("and this")).not_to_contain_text("Answered")
    line.keeps = never
    line.let_go()
    expect(talk.delivery("and this")).to_contain_text("Answered")


def test_an_own_message_whose_event_comes_before_its_acknowledgement_is_shown_once(
    page: Page, site: Site
) -> None:
    line = Line(page, keeps=lambda frame: frame["type"] == "ack")
    talk = Talk(page, site, site.create()).open()
    talk.say("Hello")
    expect(talk.messages("user").filter(has_text="Hello")).to_have_count(1)
    expect(talk.unsent).to_have_count(0)
    line.until(lambda frame: True)
    line.keeps = never
    line.let_go()
    expect(talk.delivery("Hello")).to_contain_text("Answered")


def a_message(frame: dict[str, Any]) -> bool:
    return bool(frame["type"] == "message")


@pytest.mark.slow
def test_a_message_in_another_ones_words_is_shown_until_it_is_stored_itself(page: Page, site: Site) -> None:
    line = Line(page, loses=a_message)
    talk = Talk(page, site, site.create()).open()
    talk.say("Hello")
    expect(talk.unsent).to_have_count(1)
    site.record(talk.id, [message("Hello")])
    expect(talk.messages("user").filter(has_text="Hello")).to_have_count(1)
    expect(talk.unsent).to_have_count(0)
    line.end(1012)
    expect(talk.unsent).to_have_count(1)
    line.loses = never
    line.end(1012)
    expect(talk.unsent).to_have_count(0)
    expect(talk.messages("user").filter(has_text="Hello")).to_have_count(2)


@pytest.mark.slow
def test_an_own_message_that_is_acknowledged_far_behind_does_not_stay_at_the_end(
    page: Page, site: Site
) -> None:
    line = Line(page, keeps=lambda frame: frame["type"] == "ack")
    talk = Talk(page, site, site.create()).open()
    talk.say("Hello")
    expect(talk.messages("user").filter(has_text="Hello")).to_have_count(1)
    site.record(talk.id, [message(f"Message {number}") for number in range(300)])
    expect(talk.articles.filter(has_text="Message 299")).to_be_visible()
    expect(talk.messages("user").filter(has_text="Hello")).to_have_count(0)
    line.until(lambda frame: True)
    line.let_go()
    expect(talk.unsent).to_have_count(0)


@pytest.mark.slow
def test_a_log_goes_on_though_a_request_is_never_answered(page: Page, site: Site) -> None:
    page.add_init_script(_IMPATIENT)
    talk = Talk(page, site, site.create()).open()
    held = Held(page, "**/events?after=*", times=1)
    talk.say("Hello")
    unanswered = held.first()
    talk.answered("You said: Hello")
    unanswered.abort()  # or it would be pending still when the browser ends


@pytest.mark.slow
def test_what_was_seen_is_said_again_where_that_was_lost(page: Page, site: Site) -> None:
    line = Line(page, loses=lambda frame: frame["type"] == "seen")
    talk = Talk(page, site, site.create()).open()
    talk.say("Hello")
    talk.answered("You said: Hello")
    row = page.locator(f"#row-{talk.id}")
    expect(row.locator(".new")).to_be_visible()
    line.loses = never
    line.end(1012)
    talk.hurry()
    expect(row.locator(".new")).to_have_count(0)


@pytest.mark.slow
def test_a_page_comes_back_with_the_cursor_of_the_last_event_that_it_has(page: Page, site: Site) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create())
    site.record(talk.id, [message("One")], key="first")
    talk.open()
    site.record(talk.id, [message("Two")], key="second")
    expect(talk.articles.filter(has_text="Two")).to_be_visible()
    line.end(1012)
    talk.hurry()
    line.until_opened(2)
    cursors = [event["cursor"] for event in site.events(talk.id)]
    assert [parse_qs(urlsplit(address).query)["after"] for address in line.addresses] == [
        [cursor] for cursor in cursors
    ]


@pytest.mark.parametrize("code", ["cursor_ahead", "history_replaced"])
def test_a_history_that_was_replaced_is_loaded_anew_and_the_page_says_so_once(
    page: Page, site: Site, code: str
) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create()).open()
    with page.expect_event("load"):
        line.say({"type": "error", "code": code, "detail": "Another history.", "id": None})
    talk.is_connected()
    expect(page.locator("#toasts")).to_contain_text("was replaced on the server")
    page.reload()
    talk.is_connected()
    expect(page.locator("#toasts .toast")).to_have_count(0)


def test_a_page_goes_on_where_another_tab_has_logged_in_again(page: Page, site: Site) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create()).open()
    with page.expect_event("load"):
        line.end(4401, "You are not logged in any more.")
    talk.is_connected()


def test_what_was_asked_of_an_agent_on_a_line_that_breaks_is_not_taken_for_done(
    page: Page, site: Site
) -> None:
    line = Line(page, loses=lambda frame: frame["type"] == "pause")
    talk = Talk(page, site, site.create()).open()
    talk.say(MORE_SLOWLY)
    page.get_by_role("button", name="Pause", exact=True).click()
    line.end(1012)
    expect(page.locator("#toasts")).to_contain_text("Check whether your last action took effect")


@pytest.mark.slow
def test_the_menu_knows_a_title_that_was_given_meanwhile(talk: Talk) -> None:
    talk.site.rename(talk.id, "Given by another")
    expect(talk.page.get_by_role("heading", level=1)).to_have_text("Given by another")
    talk.page.locator("#menu summary").click()
    expect(talk.page.locator("#menu").get_by_label("Title")).to_have_value("Given by another")


def _tells_of_an_end(frame: dict[str, Any]) -> bool:
    loop: dict[str, Any] = frame.get("changes", {}).get("loop", {})
    return loop.get("execution_status") == "finished"


_IMPATIENT = """
const real = AbortSignal.timeout;
AbortSignal.timeout = () => real.call(AbortSignal, 1500);
"""

_HEAR_OF_VERSION_2 = """
() => {
  window.heard = new Promise((done) => {
    document.addEventListener("draft", ({ detail }) => detail.version >= 2 && done());
  });
}
"""

# The page's own class, told of the stored message first: how often its answer shows in the two places.
_LATE_WORDS = """
async () => {
  const names = performance.getEntriesByType("resource").map(({ name }) => name);
  const { Answers } = await import(names.find((name) => name.includes("/web/answers")));
  const root = document.querySelector("#conversation");
  const stored = root.querySelector("#events article.message.agent");
  const answers = new Answers(root, { onShown() {} });
  answers.replacedBy(stored);
  const late = `<div class="preview" data-answer="${stored.dataset.id}" data-kept="0"><p>Hello</p></div>`;
  window.fetch = async () => new Response(late);
  answers.show({ type: "delta", answer: stored.dataset.id, text: "Hello" });
  await answers.fetch();
  const places = ["#answers article", "#events article.message.agent"];
  return places.map((place) => root.querySelectorAll(place).length);
}
"""
