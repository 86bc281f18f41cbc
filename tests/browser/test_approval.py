"""What the agent may do is said by one click or one key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

SLOWLY = "slow: " + " ".join(f"word{number}" for number in range(60))


WAYS = ["button", "key"]
DECISIONS = [
    ("Approve", "a", "removed (pretended)", "Done."),
    ("Reject", "r", "The user said no.", "OK, I won't."),
]


def test_each_call_waits_for_a_decision_of_its_own(talk: Talk) -> None:
    rounds = product(WAYS, DECISIONS)
    for number, (way, (decision, key, outcome, words)) in enumerate(rounds, start=1):
        talk.say("/approve")
        talk.asked()
        expect(talk.page.locator("#agent-state")).to_contain_text("Needs your approval")
        if way == "button":
            talk.approval.get_by_role("button", name=decision).click()
        else:
            talk.page.keyboard.press("Escape")
            talk.page.keyboard.press(key)
        expect(talk.approval).to_be_hidden()
        cards = talk.page.locator("#events article.tool_call")
        expect(cards.last.locator(".results")).to_contain_text(outcome)
        expect(talk.messages("agent").last).to_contain_text(words)
        expect(talk.unsent).to_have_count(0)
        expect(talk.streaming).to_have_count(0)
        expect(cards).to_have_count(number)


@pytest.mark.no_second_try
def test_a_decision_is_sent_once_however_often_it_is_asked_for(page: Page, site: Site) -> None:
    sent: list[dict[str, Any]] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(json.loads(frame))))
    talk = Talk(page, site, site.create()).open()
    presses = {
        "button": "document.querySelector('#approval [data-action=approve]').click()",
        "key": "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'a', bubbles: true}))",
    }
    for number, way in enumerate(WAYS, start=1):
        sent.clear()
        talk.say("/approve")
        talk.asked()
        talk.page.keyboard.press("Escape")
        seq = talk.waiting.get_attribute("data-seq")
        talk.page.evaluate(f"for (let i = 0; i < 20; i++) {presses[way]}")
        expect(talk.messages("agent").filter(has_text="Done.")).to_have_count(number)
        decisions = [frame for frame in sent if frame["type"] == "confirm"]
        assert [(each["accept"], each["seq"]) for each in decisions] == [(True, int(seq or -1))], way


def test_a_call_that_is_not_shown_is_not_decided_about(talk: Talk) -> None:
    events = [message(f"Message {number}\n\n" + "word\n\n" * 5) for number in range(260)]
    talk.site.record(talk.id, events)
    talk.page.goto(f"/c/{talk.id}?around=20#e20")
    talk.is_connected()
    talk.site.send(talk.id, {"type": "message", "id": uuid4().hex, "text": "/approve"})
    expect(talk.approval).to_be_visible()
    talk.approval.get_by_role("button", name="Approve").click()
    expect(talk.waiting).to_be_in_viewport()
    expect(talk.approval).to_be_visible()
    talk.approval.get_by_role("button", name="Approve").click()
    talk.answered("Done.")


LONG = (
    "run this: for f in $(cat list.txt); do\n"
    + "  echo $f\n" * 80
    + "done\ncurl -X DELETE https://example.org"
)


def test_a_command_of_many_lines_is_shown_whole_and_approved_once_its_end_was_seen(talk: Talk) -> None:
    talk.say(LONG)
    talk.asked(is_read=False)
    reading = talk.waiting.locator(".reading")
    expect(reading).to_contain_text("curl -X DELETE https://example.org")
    expect(talk.waiting).to_contain_text("83 lines")
    approve = talk.approval.get_by_role("button", name="Approve")
    expect(approve).to_be_disabled()
    expect(talk.approval).to_contain_text("Scroll to the end of the call to approve it.")
    expect(talk.approval.get_by_role("button", name="Reject")).to_be_enabled()
    reading.evaluate("(all) => { all.scrollTop = all.scrollHeight; }")
    expect(approve).to_be_enabled()
    approve.click()
    talk.answered("Done.")


@pytest.mark.slow
def test_the_key_leads_into_what_is_to_be_read_and_the_keys_there_to_its_end(talk: Talk) -> None:
    talk.say(LONG)
    talk.asked(is_read=False)
    talk.page.keyboard.press("Escape")
    talk.page.keyboard.press("a")
    expect(talk.page.locator("#toasts")).to_contain_text("Scroll to the end of the call")
    expect(talk.waiting.locator(".reading")).to_be_focused()
    talk.page.keyboard.press("End")
    expect(talk.approval.get_by_role("button", name="Approve")).to_be_enabled()
    talk.page.keyboard.press("a")
    talk.answered("Done.")


def test_nothing_of_a_long_line_is_off_to_the_right(talk: Talk) -> None:
    talk.page.set_viewport_size({"width": 390, "height": 800})
    talk.say("run this: echo " + "a" * 400 + " " * 400 + "; rm -r /")
    talk.asked(is_read=False)
    reading = talk.waiting.locator(".reading")
    assert reading.evaluate("(all) => all.scrollWidth - all.clientWidth") <= 0


def test_a_call_too_long_to_be_shown_can_only_be_rejected(talk: Talk) -> None:
    talk.say("run this often: echo")
    talk.asked(is_read=False)
    reading = talk.waiting.locator(".reading")
    reading.evaluate("(all) => { all.scrollTop = all.scrollHeight; }")
    expect(talk.approval).to_contain_text("cannot be approved here")
    expect(talk.approval.get_by_role("button", name="Approve")).to_be_disabled()
    talk.approval.get_by_role("button", name="Reject").click()
    talk.answered("OK, I won't")


@pytest.mark.slow
def test_a_call_that_came_before_the_agent_was_known_to_wait_is_shown_whole_then(talk: Talk) -> None:
    talk.say("/approve")
    talk.asked()
    talk.waiting.locator(".subject").evaluate("(subject) => subject.remove()")
    expect(talk.waiting.locator(".subject")).to_contain_text("rm -r build")
    talk.approval.get_by_role("button", name="Approve").click()
    talk.answered("Done.")


@pytest.mark.slow
def test_a_call_that_could_not_be_fetched_whole_is_fetched_again(talk: Talk) -> None:
    talk.say("/approve")
    talk.asked()
    talk.page.route(re.compile("after="), lambda route: route.abort(), times=1)
    talk.waiting.locator(".subject").evaluate("(subject) => subject.remove()")
    expect(talk.waiting.locator(".subject")).to_contain_text("rm -r build")
    talk.approval.get_by_role("button", name="Approve").click()
    talk.answered("Done.")


def test_a_rejection_says_why(talk: Talk) -> None:
    talk.say("/approve")
    talk.asked()
    talk.page.get_by_label("Reason").fill("Not on a Friday")
    talk.page.get_by_label("Reason").press("Enter")
    expect(talk.page.locator("#events article.tool_call .results")).to_contain_text("Not on a Friday")


def test_a_decision_without_a_server_is_said_to_be_none(talk: Talk) -> None:
    talk.say("/approve")
    talk.asked()
    talk.site.kill()
    expect(talk.line).not_to_have_text("Connected")
    talk.page.keyboard.press("Escape")
    talk.page.keyboard.press("a")
    expect(talk.page.locator("#toasts")).to_contain_text("Not sent")
    talk.site.open()
    talk.hurry()
    talk.asked()


@pytest.mark.slow
def test_a_key_that_is_typed_into_the_box_decides_nothing(talk: Talk) -> None:
    talk.say("/approve")
    expect(talk.approval).to_be_visible()
    talk.box.press_sequentially("arps")
    expect(talk.box).to_have_value("arps")
    expect(talk.approval).to_be_visible()
    expect(talk.page.locator("#events article.tool_call .results")).to_be_empty()


def test_an_approval_outlives_a_reload_and_is_asked_for_once(talk: Talk) -> None:
    talk.say("/approve")
    talk.asked()
    talk.page.reload()
    talk.asked()
    expect(talk.page.get_by_role("button", name="Approve")).to_have_count(1)
    expect(talk.page.get_by_role("button", name="Reject")).to_have_count(1)
    talk.approval.get_by_role("button", name="Approve").click()
    talk.answered("Done.")


@pytest.mark.parametrize("decision", ["Approve", "Reject", "Stop"])
@pytest.mark.slow
def test_a_page_opened_anew_asks_until_another_one_has_decided(
    talk: Talk, browse: Browse, decision: str
) -> None:
    talk.say("/approve")
    talk.asked()
    other = Talk(browse().new_page(), talk.site, talk.id).open()
    other.asked()
    talk.page.get_by_role("button", name=decision).click()
    expect(other.page.get_by_role("button", name="Approve")).to_have_count(0)
    expect(other.page.get_by_text("The agent needs your approval for the call")).to_be_hidden()


@pytest.mark.parametrize("still_open", [True, False])
@pytest.mark.sampled(1)
def test_an_approval_outlives_a_server_that_is_killed(talk: Talk, still_open: bool) -> None:
    talk.say("/approve")
    expect(talk.waiting).to_have_count(1)
    talk.site.kill()
    talk.site.open()
    if still_open:
        talk.hurry()
    else:
        talk.page.reload()
    talk.is_connected()
    expect(talk.page.locator("#agent-state")).to_have_text("Needs your approval")
    talk.asked()
    talk.approval.get_by_role("button", name="Approve").click()
    talk.answered("Done.")


def test_the_agent_is_paused_and_let_go_on_by_one_key(talk: Talk) -> None:
    talk.say("slow: " + " ".join(f"word{number}" for number in range(40)))
    expect(talk.streaming).to_contain_text("word2")
    expect(talk.page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    talk.page.keyboard.press("Escape")
    talk.page.keyboard.press("p")
    state = talk.page.locator("#agent-state")
    expect(state).to_contain_text("Pausing…")
    expect(state).to_contain_text("Paused")
    talk.page.keyboard.press("p")
    expect(state).to_contain_text("Idle")


def test_the_agent_is_stopped_by_one_key(talk: Talk) -> None:
    talk.say(SLOWLY)
    expect(talk.streaming).to_contain_text("word2")
    stop = talk.page.get_by_role("button", name="Stop", exact=True)
    expect(stop).to_be_visible()
    talk.page.keyboard.press("Escape")
    talk.page.keyboard.press("s")
    expect(talk.page.locator("#agent-state")).to_contain_text("Stopped")
    expect(talk.streaming).to_have_count(0)
    expect(stop).to_be_hidden()


@pytest.mark.slow
def test_a_call_that_is_stopped_while_it_waits_stays_one_card(talk: Talk) -> None:
    talk.say("/approve")
    expect(talk.waiting).to_have_count(1)
    talk.page.get_by_role("button", name="Stop", exact=True).click()
    expect(talk.page.locator("#events article.tool_call .results")).to_contain_text("Stopped")
    expect(talk.waiting).to_have_count(0)
    expect(talk.page.locator("#events").get_by_text("Result of")).to_have_count(0)


@pytest.fixture
def careful(page: Page, site: Site) -> Iterator[None]:
    """Ask for an approval before each tool call, for as long as the test takes."""

    def ask(is_on: bool) -> None:
        page.goto(f"{site.url}/settings")
        page.get_by_label("Ask for my approval before each tool call").set_checked(is_on)
        page.locator("form[action$=approval]").get_by_role("button").click()
        expect(page.get_by_role("status").filter(has_text="Saved.")).to_be_visible()

    ask(True)
    yield
    ask(False)


def test_a_tool_is_allowed_with_its_approval_until_that_is_withdrawn(careful: None, talk: Talk) -> None:
    page, scope = talk.page, talk.approval.get_by_label("For which calls the approval is")
    cards = page.locator("#events article.tool_call")
    talk.say("/approve")
    talk.asked()
    expect(scope).to_be_hidden()
    talk.approval.get_by_role("button", name="Reject").click()
    talk.answered("OK, I won't.")
    talk.say("/tool")
    talk.asked()
    scope.select_option("Always in this conversation")
    talk.approval.get_by_role("button", name="Approve").click()
    expect(cards.nth(1).locator(".results > *")).to_have_count(1)
    talk.say("/tool")
    expect(cards.nth(2).locator(".results > *")).to_have_count(1)
    page.goto(f"{talk.site.url}/settings#tools")
    allowed = page.get_by_role("listitem").filter(has_text="Only in A talk")
    expect(allowed.locator("strong")).to_have_text("run")
    allowed.get_by_role("button", name="Ask again before run runs").click()
    expect(allowed).to_have_count(0)
    talk.open()
    talk.say("/tool")
    talk.asked()
    expect(scope).to_have_value("")


@pytest.mark.slow
def test_a_tool_and_its_result_are_one_card(talk: Talk) -> None:
    talk.say("/tool")
    talk.answered("It is noon on Friday")
    cards = talk.page.locator("#events article.tool_call")
    expect(cards).to_have_count(1)
    expect(cards.locator(".results")).to_contain_text("12:00:00 UTC 2026")
    expect(talk.page.locator("#events > .stretch > .tool_result")).to_have_count(0)


@pytest.mark.slow
def test_an_agent_that_breaks_down_says_so_in_words(talk: Talk) -> None:
    talk.say("/fail")
    expect(talk.page.locator("#events article.error")).to_be_visible()
    expect(talk.page.locator("#agent-state")).to_have_text("Failed")
    expect(talk.page.locator("#events").get_by_text("The agent stopped with an error")).to_have_count(0)
    expect(talk.page.locator("#next .words")).to_have_text("Retry your last message, or send another.")
    expect(talk.delivery("/fail")).to_contain_text("Not answered: the agent failed")
