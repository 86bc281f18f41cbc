"""What became of a call that a crash has cut off is said by one click or one key."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.people.agents import CUT_OFF

pytestmark = once

AGENT = "tests.support.people.agents.CutOffAgent"
GOES_ON = "I go on."


@pytest.fixture
def cut_site(site: Site) -> Iterator[Site]:
    """The server with an agent that can go on after a crash; the next test gets the usual one."""
    site.kill()
    site.open(CONVSERVER_AGENT=AGENT)
    yield site
    site.kill()


Cut = Callable[[], None]


@pytest.fixture
def kill(cut_site: Site) -> Cut:
    """Kill the server, and start it again."""

    def killed() -> None:
        cut_site.kill()
        cut_site.open(CONVSERVER_AGENT=AGENT)

    return killed


def begun(talk: Talk) -> Talk:
    """Let the agent be in a call."""
    talk.say(CUT_OFF)
    expect(calls(talk)).to_have_count(1)
    return talk


def calls(talk: Talk) -> Locator:
    return talk.page.locator("#events article.tool_call")


def question(talk: Talk) -> Locator:
    return talk.page.get_by_role("group", name="The agent asks what became of a call")


def asked(talk: Talk) -> Locator:
    """Return what asks about the call, once it does."""
    expect(question(talk)).to_contain_text("Has the call above taken effect?")
    expect(calls(talk).locator("header .state")).to_have_text("Outcome unknown")
    expect(calls(talk).locator(".subject")).to_contain_text("rm -r build")
    expect(question(talk).get_by_role("button", name="Approve")).to_be_hidden()
    expect(question(talk).get_by_role("button", name="Run again")).to_be_enabled()
    return question(talk)


def test_a_person_says_what_became_of_a_call(cut_site: Site, browse: Browse, kill: Cut) -> None:
    pages = [browse().new_page() for _ in range(3)]
    again, done, skipped = [begun(Talk(page, cut_site, cut_site.create()).open()) for page in pages]
    kill()
    again.hurry()
    for talk in (done, skipped):
        talk.page.reload()
    asked(again).get_by_role("button", name="Run again").click()
    again.answered(GOES_ON)
    expect(calls(again).locator(".results")).to_contain_text("removed again")
    asked(done).get_by_placeholder("What happened (optional)").fill("The folder is gone")
    question(done).get_by_role("button", name="Done").click()
    done.answered(GOES_ON)
    expect(calls(done).locator(".results")).to_contain_text("The folder is gone")
    asked(skipped)
    skipped.page.keyboard.press("Escape")
    skipped.page.keyboard.press("r")
    skipped.answered(GOES_ON)
    expect(calls(skipped).locator(".results")).to_contain_text("The user skipped the call")
    for talk in (again, done, skipped):
        expect(question(talk)).to_be_hidden()
        expect(calls(talk)).to_have_count(1)


@pytest.mark.slow
def test_it_is_said_by_a_form_where_no_script_runs(cut_site: Site, browse: Browse, kill: Cut) -> None:
    talk = begun(Talk(browse().new_page(), cut_site, cut_site.create()).open())
    kill()
    talk.hurry()
    asked(talk)
    plain = Talk(browse(java_script_enabled=False).new_page(), cut_site, talk.id)
    plain.page.goto(f"{cut_site.url}/c/{talk.id}")
    form = plain.page.locator("form.decision")
    expect(form).to_contain_text("Has the call above taken effect?")
    form.get_by_role("button", name="Done").click()
    talk.answered(GOES_ON)
    expect(calls(talk).locator(".results")).to_contain_text("The user says that the call has taken effect.")
