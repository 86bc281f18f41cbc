"""Every state of a conversation's page: what it is called, what can be done about it, and that this works."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.conftest import Browse
from tests.browser.line import Judge, Line, never
from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

SLOWLY = "slow: " + " ".join(f"word{number}" for number in range(300))
"""For answers that no test waits for to the end."""


class Shown(NamedTuple):
    """What the page shows in one state."""

    loop: dict[str, str]
    words: str
    buttons: list[str]
    """What is offered, in the header and above the composer."""
    next: str = ""
    """The beginning of the sentence about what to do."""
    queued: str = "Sent"
    """What is said of a message that the agent has not taken up."""


def loop(
    status: str, execution: str, *, agent: str = "a", ended_by: str = "", error: str = ""
) -> dict[str, str]:
    """Return a loop as the server tells of it."""
    return {
        "status": status,
        "execution_status": execution,
        "agent": agent,
        "error": error,
        "ended_by": ended_by,
    }


STATES = {
    "never started": Shown(loop("stopped", "idle", agent=""), "Not started", []),
    "starting": Shown(
        loop("starting", "idle"), "Starting…", ["Stop"], queued="Queued until the agent has started"
    ),
    "idle": Shown(loop("running", "idle"), "Idle", []),
    "asleep": Shown(loop("stopped", "idle", ended_by="idle"), "Idle", []),
    "paused": Shown(
        loop("running", "paused"),
        "Paused",
        ["Stop", "Resume"],
        "The agent is paused.",
        queued="Queued until the agent resumes",
    ),
    "paused and asleep": Shown(
        loop("stopped", "paused", ended_by="idle"),
        "Paused",
        ["Resume"],
        "The agent is paused.",
        queued="Queued until the agent resumes",
    ),
    "waiting for approval": Shown(
        loop("running", "waiting_for_confirmation"),
        "Needs your approval",
        ["Stop", "Approve", "Reject"],
        queued="Queued until you approve or reject the call",
    ),
    "finished": Shown(loop("running", "finished"), "Finished", []),
    "error": Shown(
        loop("running", "error", error="It broke."), "Failed", ["Retry"], "Retry your last message"
    ),
    "stuck": Shown(loop("running", "stuck"), "Stuck", ["Retry"], "The agent keeps repeating itself."),
    "interrupted": Shown(
        loop("stopped", "error", ended_by="interrupted"),
        "Failed",
        ["Retry"],
        "The agent was stopped because the server restarted or lost its database.",
    ),
    "evicted to make room": Shown(
        loop("stopped", "idle", ended_by="crowded_out"),
        "Idle",
        ["Retry"],
        "Too many of your agents were running",
        queued="Queued until another agent is done",
    ),
    "failed and evicted": Shown(
        loop("stopped", "error", ended_by="crowded_out"),
        "Failed",
        ["Retry"],
        "The agent failed, or was stopped",
    ),
    "agent could not be made": Shown(
        loop("error", "idle", ended_by="failed", error="The agent couldn't start. The log has the reason."),
        "Failed",
        ["Retry"],
        "The agent couldn't start. The log has the reason.",
        queued="Queued until the agent can start",
    ),
    "running": Shown(loop("running", "running"), "Running", ["Pause", "Stop"]),
    "stopped with an unanswered message": Shown(
        loop("stopped", "idle", ended_by="stopped"),
        "Stopped",
        ["Retry"],
        "The agent was stopped.",
        queued="Not answered: the agent was stopped",
    ),
}


def test_each_state_of_the_agent_has_words_and_a_next_step(page: Page, site: Site) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create(title="All states")).open()
    line.keeps = lambda frame: (
        frame["type"] in ("conversation", "delta", "answer", "receipt")
        or (frame["type"] == "event" and frame["source"] != "user")
    )
    talk.say("Hello")
    expect(talk.messages("user")).to_have_count(1)
    for name, shown in STATES.items():
        line.say({"type": "conversation", "changes": {"loop": shown.loop}})
        expect(page.locator("#agent-state"), name).to_have_text(shown.words)
        expect(_next(page), name).to_have_text(re.compile(f"^{re.escape(shown.next)}"))
        expect(_offered(page), name).to_have_text(shown.buttons)
        if name != "running":  # that turn takes it up
            expect(talk.delivery("Hello"), name).to_have_text(shown.queued)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


@pytest.mark.slow
def test_an_agent_that_was_idle_when_the_server_restarted_was_not_interrupted(page: Page, site: Site) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create()).open()
    talk.say("Hello")
    talk.answered("You said: Hello")
    restarted = loop("stopped", "idle", ended_by="interrupted")
    line.say({"type": "conversation", "changes": {"loop": restarted}})
    expect(page.locator("#agent-state")).to_have_text("Idle")
    expect(_next(page)).to_have_text("")


@pytest.mark.slow
def test_an_answer_that_was_paused_and_then_stopped_says_that_it_was_interrupted(talk: Talk) -> None:
    talk.say(" ".join(f"word{number}" for number in range(2_000)))  # the demo agent heeds a pause
    expect(talk.streaming).to_contain_text("word2")
    talk.page.get_by_role("button", name="Pause", exact=True).click()
    expect(talk.page.locator("#agent-state")).to_have_text("Paused")
    talk.page.get_by_role("button", name="Stop", exact=True).click()
    answer = talk.messages("agent")
    expect(answer).to_contain_text("This answer was interrupted before it was complete.")
    talk.page.reload()
    expect(answer).to_contain_text("This answer was interrupted before it was complete.")


def test_a_pause_is_shown_at_once_and_can_be_made_a_stop(page: Page, site: Site) -> None:
    line = Line(page, loses=lambda frame: frame["type"] == "pause")
    talk = Talk(page, site, site.create()).open()
    talk.say(SLOWLY)
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#agent-state")).to_contain_text("Pausing…")
    expect(_next(page)).to_have_text("The agent pauses after this step.")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Stop now").click()
    expect(page.locator("#agent-state")).to_have_text("Stopped")
    assert line.kept == []


def test_a_stop_that_takes_its_time_is_shown_at_once_and_asked_for_once(page: Page, site: Site) -> None:
    stops: list[dict[str, Any]] = []

    def is_a_stop(frame: dict[str, Any]) -> bool:
        is_one: bool = frame["type"] == "stop"
        stops.extend([frame] * is_one)
        return is_one

    line = Line(page, loses=is_a_stop)
    talk = Talk(page, site, site.create()).open()
    talk.say(SLOWLY)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#agent-state")).to_contain_text("Stopping…")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    line.say({"type": "ack", "id": stops[0]["id"]})
    expect(page.locator("#agent-state")).to_contain_text("Stopping…")
    line.say({"type": "conversation", "changes": {"loop": loop("stopped", "idle", ended_by="stopped")}})
    expect(page.locator("#agent-state")).to_have_text("Stopped")
    assert len(stops) == 1


def test_a_message_to_a_paused_agent_is_queued_and_answered_once_it_resumes(talk: Talk) -> None:
    _pause(talk)
    talk.say("Are you there?")
    expect(talk.delivery("Are you there?")).to_have_text("Queued until the agent resumes")
    talk.page.reload()
    talk.is_connected()
    expect(talk.delivery("Are you there?")).to_have_text("Queued until the agent resumes")
    talk.page.get_by_role("button", name="Resume").click()
    talk.answered("You said: Are you there?")
    expect(talk.delivery("Are you there?")).to_contain_text("Answered")


@pytest.mark.slow
def test_a_message_to_a_paused_agent_that_is_stopped_is_not_answered_and_can_be_sent_again(
    talk: Talk,
) -> None:
    _pause(talk)
    talk.say("Are you there?")
    expect(talk.delivery("Are you there?")).to_contain_text("Queued")
    talk.page.get_by_role("button", name="Stop", exact=True).click()
    expect(talk.delivery("Are you there?")).to_contain_text("Not answered: the agent was stopped")
    talk.page.get_by_role("button", name="Retry").click()
    talk.answered("You said: Are you there?")
    assert talk.site.said(talk.id)[-2:] == ["Are you there?"] * 2


def test_what_was_not_answered_is_marked_after_a_reload_and_in_another_tab(
    talk: Talk, context: BrowserContext
) -> None:
    other = Talk(context.new_page(), talk.site, talk.id).open()
    _pause(talk)
    talk.say("Are you there?")
    expect(other.delivery("Are you there?")).to_have_text("Queued until the agent resumes")
    talk.page.get_by_role("button", name="Stop", exact=True).click()
    expect(other.delivery("Are you there?")).to_contain_text("Not answered: the agent was stopped")
    talk.page.reload()
    talk.is_connected()
    expect(talk.delivery("Are you there?")).to_contain_text("Not answered: the agent was stopped")
    talk.page.get_by_role("button", name="Retry").click()
    talk.answered("You said: Are you there?")


@pytest.mark.slow
def test_what_another_program_asked_before_the_server_was_killed_is_marked_and_can_be_sent_again(
    page: Page, site: Site
) -> None:
    talk = Talk(page, site, site.create()).open()
    site.send(talk.id, {"type": "message", "text": SLOWLY})
    expect(talk.streaming).to_contain_text("word1")
    page.goto("about:blank")
    site.kill()
    site.open()
    talk.open()
    expect(page.locator("#agent-state")).to_have_text("Failed")
    expect(talk.delivery(SLOWLY)).to_have_text("Not answered: the agent failed")
    page.get_by_role("button", name="Retry").click()
    expect(talk.streaming).to_contain_text("word1")
    assert site.said(talk.id) == [SLOWLY] * 2


@pytest.mark.slow
def test_what_another_program_asked_while_the_page_was_disconnected_is_marked(page: Page, site: Site) -> None:
    talk = Talk(page, site, site.create()).open()
    page.context.set_offline(True)
    site.kill()
    site.open()
    site.send(talk.id, {"type": "message", "text": "/fail"})
    while site.events(talk.id)[-1]["kind"] != "turn":
        page.wait_for_timeout(50)
    page.context.set_offline(False)
    talk.hurry()
    expect(talk.delivery("/fail")).to_have_text("Not answered: the agent failed")
    page.get_by_role("button", name="Retry").click()
    expect(talk.delivery("/fail").first).to_have_text("Not answered: the agent failed Retry")
    expect(talk.delivery("/fail").last).to_have_text("Not answered: the agent failed")


@pytest.mark.slow
def test_nothing_is_retried_where_everything_was_answered(talk: Talk) -> None:
    talk.say("Hello")
    talk.answered("You said: Hello")
    talk.site.delete(talk.id)
    expect(talk.page.locator("#agent-state")).to_have_text("Deleted")
    talk.site.restore(talk.id)
    talk.is_connected()
    talk.page.reload()
    expect(talk.page.locator("#agent-state")).to_have_text("Finished")
    expect(talk.page.get_by_role("button", name="Retry")).to_be_hidden()


@pytest.mark.parametrize("version", ["V0", "V1"])
@pytest.mark.slow
def test_the_last_message_is_said_again_by_retry_after_a_reload_too(
    page: Page, site: Site, version: str
) -> None:
    talk = Talk(page, site, site.create(version=version)).open()
    talk.say(SLOWLY)
    expect(talk.streaming).to_contain_text("word2")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#next").get_by_role("button", name="Retry")).to_be_visible()
    page.reload()
    talk.is_connected()
    page.locator("#next").get_by_role("button", name="Retry").click()
    expect(talk.messages("user")).to_have_count(2)
    assert site.said(talk.id) == [SLOWLY] * 2
    page.get_by_role("button", name="Stop", exact=True).click()


def test_a_tab_whose_conversation_was_deleted_elsewhere_can_bring_it_back(talk: Talk) -> None:
    talk.site.delete(talk.id)
    expect(talk.page.locator("#agent-state")).to_have_text("Deleted")
    expect(_next(talk.page)).to_have_text("This conversation was deleted.")
    expect(talk.page.get_by_role("link", name="Back to conversations")).to_be_visible()
    talk.page.get_by_role("button", name="Restore").click()
    talk.is_connected()
    expect(talk.page.locator("#agent-state")).to_have_text("Not started")


@pytest.mark.slow
def test_a_tab_that_was_away_while_its_conversation_was_deleted_has_a_way_out(
    talk: Talk, context: BrowserContext
) -> None:
    context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    talk.site.delete(talk.id)
    context.set_offline(False)
    expect(_next(talk.page)).to_contain_text("This conversation was deleted")
    talk.page.get_by_role("link", name="Back to conversations").click()
    expect(talk.page).to_have_url("/")


@pytest.mark.slow
def test_a_conversation_that_cannot_be_restored_says_so(page: Page, site: Site) -> None:
    line = Line(page)
    Talk(page, site, site.create()).open()
    page.route("**/restore", lambda route: route.fulfill(status=404, body="{}"))
    line.end(4404, "Conversation not found.")
    page.get_by_role("button", name="Restore").click()
    expect(page.locator("#toasts")).to_contain_text("This conversation can't be restored.")


def test_a_message_that_was_refused_is_sent_again_or_edited(page: Page, site: Site) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create()).open()
    frames: list[dict[str, Any]] = []
    line.loses = _losing_messages(frames)
    talk.say("Refused at first")
    expect(talk.delivery("Refused at first")).to_have_text("Sending…")
    _until(page, frames)
    line.loses = never
    refusal = {
        "type": "error",
        "code": "invalid_event",
        "detail": "It cannot be read.",
        "id": frames[0]["id"],
    }
    line.say(refusal)
    expect(talk.delivery("Refused at first")).to_contain_text("Not sent: It cannot be read.")
    talk.delivery("Refused at first").get_by_role("button", name="Retry").click()
    talk.answered("You said: Refused at first")
    assert site.said(talk.id) == ["Refused at first"]


@pytest.mark.slow
def test_a_server_that_cannot_store_now_says_why_while_it_is_tried_again(page: Page, site: Site) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create()).open()
    frames: list[dict[str, Any]] = []
    line.loses = _losing_messages(frames)
    talk.say("Hello")
    _until(page, frames)
    line.say({"type": "error", "code": "unavailable", "detail": "The disk is full.", "id": frames[0]["id"]})
    expect(talk.delivery("Hello")).to_have_text("Not sent yet: The disk is full. Retrying…")
    line.loses = never
    talk.answered("You said: Hello")


@pytest.mark.parametrize("minutes", [-90, 90])
@pytest.mark.slow
def test_the_time_of_a_turn_is_right_whatever_the_clock_of_the_device_says(
    page: Page, site: Site, minutes: int
) -> None:
    page.add_init_script(_SET_CLOCK.replace("MINUTES", str(minutes)))
    talk = Talk(page, site, site.create()).open()
    talk.say(SLOWLY)
    elapsed = page.locator("#agent-state .elapsed")
    expect(elapsed).to_have_text(re.compile(r"^[1-9]\d? s$"))
    expect(elapsed).to_have_attribute("aria-hidden", "true")
    page.reload()
    expect(elapsed).to_have_text(re.compile(r"^[1-9]\d? s$"))
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(elapsed).to_have_text("")


@pytest.mark.slow
def test_the_time_of_a_running_tool_is_shown(page: Page, site: Site) -> None:
    line = Line(page)
    talk = Talk(page, site, site.create()).open()
    call = {"action": "run", "source": "agent", "args": {"command": "make test"}, "tool_call_metadata": None}
    site.record(talk.id, [message("Hello"), call])
    line.say({"type": "conversation", "changes": {"loop": loop("running", "running")}})
    line.say(_state_running(site.events(talk.id)[-1]["timestamp"]))
    page.locator("#events article.tool_call .state").evaluate("state => (state.className = 'state running')")
    expect(page.locator("#events article.tool_call .elapsed")).to_have_text(re.compile(r"^\d+ s$"))


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.slow
def test_a_toast_covers_nothing_that_is_written_or_decided(site: Site, browse: Browse, width: int) -> None:
    page = browse(viewport={"width": width, "height": 844}).new_page()
    talk = Talk(page, site, site.create()).open()
    talk.box.fill("several\nlines\nof\ntext")
    talk.box.press("Enter")
    talk.say("/approve")
    talk.asked()
    page.evaluate("document.dispatchEvent(new CustomEvent('toast', { detail: 'Link copied.' }))")
    toast = page.locator(".toast").bounding_box()
    foot = page.locator("#conversation .foot").bounding_box()
    assert toast is not None
    assert foot is not None
    assert toast["y"] + toast["height"] <= foot["y"]


def _pause(talk: Talk) -> None:
    talk.say("slow: " + " ".join(f"word{number}" for number in range(20)))
    expect(talk.streaming).to_contain_text("word2")
    talk.page.get_by_role("button", name="Pause", exact=True).click()
    expect(talk.page.locator("#agent-state")).to_have_text("Paused")


def _next(page: Page) -> Locator:
    return page.locator("#next .words")


def _offered(page: Page) -> Locator:
    return page.locator(":is(.controls, .next, .approval) :is(button, .button):visible")


def _until(page: Page, frames: list[dict[str, Any]]) -> None:
    while not frames:
        page.wait_for_timeout(10)  # meanwhile Playwright hands over what the page sends


def _losing_messages(frames: list[dict[str, Any]]) -> Judge:
    """Mean messages, which are kept in `frames`."""

    def loses(frame: dict[str, Any]) -> bool:
        is_message: bool = frame["type"] == "message"
        if is_message:
            frames.append(frame)
        return is_message

    return loses


def _state_running(timestamp: str) -> dict[str, Any]:
    return {
        "type": "event",
        "seq": 2,
        "id": "state",
        "dialect": "v0",
        "event_type": "agent_state_changed",
        "kind": "state",
        "source": "agent",
        "timestamp": timestamp,
        "cause": None,
        "text": "running",
    }


_SET_CLOCK = """
const now = Date.now;
Date.now = () => now() + MINUTES * 60_000;
"""
