"""What a message does that is sent while the agent works: the choice in the menu, and what the page says."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

STEPS = "steps: " + " ".join(["step"] * 40)
SLOW = "slow: " + " ".join(f"word{number}" for number in range(40))
SLOWLY = "slow: " + " ".join(f"word{number}" for number in range(300))


def menu(talk: Talk) -> Locator:
    """Open the conversation's menu, and return the choice in it."""
    if not talk.page.locator("#menu[open]").count():
        talk.page.locator("#menu > summary").click()
    return talk.page.get_by_label("If I write while the agent works:")


def choose(talk: Talk, words: str) -> None:
    """Choose, and return once the server knows."""
    with talk.page.expect_response("**/while-working"):
        menu(talk).select_option(label=words)
    talk.page.keyboard.press("Escape")


def work(talk: Talk, text: str) -> None:
    talk.say(text)
    expect(talk.page.locator("#agent-state")).to_contain_text("Running")
    expect(talk.delivery(text)).to_have_text("Seen by the agent")


@pytest.mark.slow
def test_the_choice_is_kept_and_messages_wait_by_default(talk: Talk) -> None:
    expect(menu(talk)).to_have_value("queue")
    choose(talk, "interrupt the agent")
    talk.page.reload()
    talk.is_connected()
    expect(menu(talk)).to_have_value("interrupt")


def test_a_message_that_steers_is_seen_in_the_turn_that_is_played(talk: Talk) -> None:
    choose(talk, "show it before the next step")
    work(talk, STEPS)
    expect(talk.box).to_have_attribute("placeholder", "Steer the agent…")
    talk.say("turn left")
    expect(talk.messages("agent").filter(has_text="you said: turn left")).to_have_count(1)
    expect(talk.delivery("turn left")).to_have_text("Seen by the agent")
    expect(talk.page.locator("#agent-state")).to_have_text("Finished")
    expect(talk.delivery("turn left")).to_contain_text("Answered")
    expect(talk.box).to_have_attribute("placeholder", "Message the agent…")


def test_a_message_that_interrupts_is_answered_and_what_it_has_cut_off_says_so(talk: Talk) -> None:
    choose(talk, "interrupt the agent")
    work(talk, SLOWLY)
    talk.say("never mind")
    talk.answered("You said: never mind")
    expect(talk.delivery("word299")).to_have_text("Interrupted by your next message")
    expect(talk.delivery("never mind")).to_contain_text("Answered")
    expect(talk.messages("agent").first).to_contain_text(
        "This answer was interrupted before it was complete."
    )


@pytest.mark.slow
def test_a_message_that_is_refused_stays_in_the_box_and_goes_out_when_the_agent_is_done(talk: Talk) -> None:
    choose(talk, "refuse it")
    work(talk, SLOW)
    talk.say("my long text")
    expect(talk.box).to_have_value("my long text")
    refused = talk.page.locator("#composer .refused")
    expect(refused).to_contain_text("Not sent: the agent takes no messages until it is done.")
    expect(talk.unsent).to_have_count(0)
    refused.get_by_role("button", name="Send when it is done").click()
    expect(refused).to_be_hidden()
    expect(talk.box).to_have_value("")
    expect(talk.delivery("my long text")).to_contain_text("Will be sent when the agent is done")
    talk.answered("You said: my long text")
    assert talk.site.said(talk.id) == [SLOW, "my long text"]


def test_a_message_for_when_the_agent_is_done_can_be_edited_and_outlives_its_page(talk: Talk) -> None:
    choose(talk, "refuse it")
    work(talk, SLOW)
    talk.say("my long text")
    talk.page.get_by_role("button", name="Send when it is done").click()
    talk.page.get_by_role("button", name="Edit and resend").click()
    expect(talk.box).to_have_value("my long text")
    talk.say("my longer text")
    talk.page.get_by_role("button", name="Send when it is done").click()
    expect(talk.delivery("my longer text")).to_contain_text("Will be sent when the agent is done")
    talk.page.reload()
    talk.answered("You said: my longer text")


@pytest.mark.parametrize("version", ["V0", "V1"])
@pytest.mark.slow
def test_the_default_is_that_of_the_wire(talk: Talk, version: str) -> None:
    talk.id = talk.site.create(version=version)
    talk.open()
    expect(menu(talk)).to_have_value("steer" if version == "V1" else "queue")
