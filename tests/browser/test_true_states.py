"""What a page says of calls, messages and failures holds at the moment at which it says so."""

from __future__ import annotations

from uuid import uuid4

from playwright.sync_api import Page, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

_PROGRESS = """async () => {
  const loaded = performance.getEntriesByType("resource").map(({ name }) => name);
  const { Progress } = await import(loaded.find((name) => name.includes("/progress")));
  const progress = new Progress();
  const working = { isWorking: true };
  const timestamp = "2026-11-29T12:00:00Z";
  const at = (seq, kind, more) => ({ seq, kind, source: "environment", timestamp, ...more });
  progress.begun(3); // heard late: two messages are in the log by then, of which the turn was shown one
  progress.heard(at(3, "message", { source: "agent" }), working);
  progress.heard(at(4, "turn", { state: "awaiting_user_input" }), working);
  const before = progress.of(2).name;
  progress.seen([2]);
  return [before, progress.of(1).name, progress.of(2).name];
}"""


def test_a_rejected_call_is_called_that_before_the_agent_goes_on(talk: Talk, browse: Browse) -> None:
    talk.say("run this later: rm -r build")
    talk.asked()
    other = Talk(browse().new_page(), talk.site, talk.id).open()
    other.asked()
    talk.approval.get_by_role("button", name="Reject").click()
    late = Talk(browse().new_page(), talk.site, talk.id)
    for each in (talk, other, late):
        if each is late:
            late.open()
        state = each.page.locator("#events article.tool_call > header .state")
        expect(state).to_have_text("Rejected")
        expect(each.approval).to_be_hidden()
        expect(each.page.locator("#agent-state")).to_contain_text("Running")
    talk.site.send(talk.id, {"type": "message", "id": uuid4().hex, "text": "go on"})
    talk.answered("OK, I won't")
    expect(talk.page.locator("#agent-state")).not_to_contain_text("Running")


def test_a_message_that_is_sent_again_shows_its_words_once(talk: Talk) -> None:
    talk.say("/fail")
    expect(talk.delivery("/fail")).to_contain_text("Not answered")
    talk.page.locator("#next").get_by_role("button", name="Retry").click()
    expect(talk.messages("user")).to_have_count(2)
    for _ in range(2):
        words = talk.page.locator("article.message.user .body:visible")
        expect(words).to_have_text(["/fail"])
        expect(talk.messages("user").last).to_contain_text("Sent again")
        talk.page.reload()
        talk.is_connected()
    talk.say("Something else")
    talk.answered("You said: Something else")
    talk.say("Something else")
    expect(talk.messages("agent").filter(has_text="You said: Something else")).to_have_count(2)
    expect(words).to_have_text(["/fail", "Something else", "Something else"])


def test_a_message_is_not_answered_by_a_turn_that_was_not_shown_it(page: Page, site: Site) -> None:
    talk = Talk(page, site, site.create()).open()
    assert talk.page.evaluate(_PROGRESS) == ["answered", "answered", "delivered"]
