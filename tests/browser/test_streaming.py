"""An answer while it is being given, and what becomes of it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk

SLOWLY = f"slow: one two three {' '.join(map(str, range(4, 66)))}"
"""It takes six seconds and more, in which a busy machine has time to do something else."""
STILL_PX = 2.0


def test_an_answer_grows_and_then_stands_where_it_grew(talk: Talk) -> None:
    talk.site.record(talk.id, [_greeting()])
    talk.say(SLOWLY)
    expect(talk.streaming).to_contain_text("one two")
    talk.page.evaluate(_NOTE_PLACES)
    talk.answered(SLOWLY)
    lengths, tops = talk.page.evaluate("[window.lengths, window.tops]")
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 3
    assert max(tops) - min(tops) <= STILL_PX


def test_an_answer_that_is_longer_than_the_window_is_followed(talk: Talk) -> None:
    talk.say("slow: " + "\n".join(f"line {number}" for number in range(25)))
    expect(talk.streaming).to_contain_text("line 20")
    distance = "log.scrollHeight - log.scrollTop - log.clientHeight"
    assert (
        talk.page.evaluate(f"() => {{ const log = document.querySelector('#log'); return {distance} }}") < 5
    )
    talk.answered("line 24")


def test_a_page_reloaded_in_mid_answer_shows_all_of_it(talk: Talk) -> None:
    talk.site.record(talk.id, [_greeting()])
    talk.say(SLOWLY)
    expect(talk.streaming).to_contain_text("one two")
    talk.page.reload()
    expect(talk.streaming).to_contain_text("You said: slow: one two three")
    talk.answered(SLOWLY)
    expect(talk.messages("user").filter(has_text="one two three")).to_have_count(1)


def test_a_message_says_how_far_it_has_come(talk: Talk) -> None:
    talk.site.record(talk.id, [_greeting()])
    talk.say(SLOWLY)
    expect(talk.delivery("one two")).to_have_text("Seen · 1")
    talk.say("and another")
    expect(talk.delivery("and another")).to_have_text("Stored as 3")
    expect(talk.delivery("one two")).to_have_text("Answered · 1")
    expect(talk.delivery("and another")).to_have_text("Answered · 3")


def test_a_page_opened_in_mid_answer_says_that_the_agent_works(page: Page, site: Site) -> None:
    talk = Talk(page, site, site.create())
    site.send(talk.id, {"type": "message", "text": SLOWLY})
    talk.open()
    expect(page.locator("#agent-state")).to_contain_text("Working")
    expect(page.locator("#working")).to_be_visible()
    expect(page.locator("#agent-state")).to_contain_text("Finished")
    expect(page.locator("#working")).to_be_hidden()


def _greeting() -> dict[str, object]:
    """Return what keeps the demo agent from explaining itself."""
    return {"action": "message", "source": "agent", "args": {"content": "Hello"}}


_NOTE_PLACES = """
() => {
  window.lengths = [];
  window.tops = [];
  const note = () => {
    const all = document.querySelectorAll("article.message.agent");
    const last = all[all.length - 1].querySelector(".body");
    window.lengths.push(last.textContent.trim().length);
    window.tops.push(last.getBoundingClientRect().top);
    requestAnimationFrame(note);
  };
  note();
}
"""
