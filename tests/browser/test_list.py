"""The list: what is done to a conversation there, what can be taken back, and what comes by itself."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

from tests.browser.site import Site, message
from tests.browser.talk import Held, Talk
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.one_engine

Row = Callable[..., Locator]


@pytest.fixture
def row(page: Page) -> Row:
    """Find the row of a conversation in a tab."""
    return lambda conversation_id, tab=page: tab.locator(f"#row-{conversation_id}")


def open_actions(row: Locator) -> None:
    """Show what can be done with a conversation."""
    row.locator(".actions > summary").click()


@pytest.mark.needs_engine
def test_a_conversation_is_renamed_in_place(talk: Talk, another_tab: Talk, row: Row) -> None:
    found = row(talk.id)
    open_actions(found)
    found.get_by_label("Title").fill("A better title")
    found.get_by_label("Title").press("Enter")
    expect(found.locator(".title")).to_have_text("A better title")
    expect(talk.page.get_by_role("heading", level=1)).to_have_text("A better title")
    expect(row(talk.id, another_tab.page).locator(".title")).to_have_text("A better title")


@pytest.mark.slow
def test_the_focus_is_on_a_renamed_row_also_where_its_script_comes_late(
    page: Page, site: Site, row: Row
) -> None:
    conversation_id = site.create(title="Renamed in a hurry")
    held = Held(page, re.compile("/web/row_focus[^/]*[.]js"))
    page.goto("/")
    found = row(conversation_id)
    open_actions(found)
    found.get_by_label("Title").fill("Renamed at leisure")
    found.get_by_label("Title").press("Enter")
    expect(found.locator(".title")).to_have_text("Renamed at leisure")
    held.first().continue_()
    expect(found.locator("a.open")).to_be_focused()


def test_a_conversation_is_pinned_to_the_top(page: Page, site: Site, row: Row) -> None:
    conversation_id = site.create(title="To be pinned")
    page.goto("/")
    pinned, others = (page.get_by_role("region", name=name) for name in ("Pinned", "Conversations"))
    open_actions(row(conversation_id))
    row(conversation_id).get_by_role("button", name="Pin").click()
    expect(pinned.locator(f"#row-{conversation_id}")).to_be_visible()
    page.reload()
    expect(pinned.locator(f"#row-{conversation_id}")).to_be_visible()
    open_actions(row(conversation_id))
    row(conversation_id).get_by_role("button", name="Unpin").click()
    expect(others.locator(f"#row-{conversation_id}")).to_be_visible()


@pytest.mark.parametrize("action", ["Archive", "Delete"])
@pytest.mark.sampled(1)
def test_what_is_put_away_can_be_taken_back(page: Page, site: Site, row: Row, action: str) -> None:
    conversation_id = site.create(title="Put away by mistake")
    page.goto("/")
    open_actions(row(conversation_id))
    row(conversation_id).get_by_role("button", name=action, exact=True).click()
    expect(row(conversation_id)).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(row(conversation_id)).to_have_count(1)
    page.reload()
    expect(row(conversation_id)).to_have_count(1)


@pytest.mark.usefixtures("browse_anew")  # whose clock stays as it is set
@pytest.mark.slow
def test_the_way_back_stays_for_a_minute(page: Page, site: Site, row: Row) -> None:
    conversation_id = site.create(title="Deleted by mistake")
    page.clock.install()
    page.goto("/")
    open_actions(row(conversation_id))
    row(conversation_id).get_by_role("button", name="Delete", exact=True).click()
    undo = page.locator("#toasts").get_by_role("button", name="Undo")
    expect(undo).to_be_visible()
    page.clock.fast_forward(50_000)
    expect(undo).to_be_visible()
    page.mouse.move(0, 0)
    page.get_by_label("Find by title").focus()
    page.clock.fast_forward(70_000)
    expect(undo).to_be_hidden()


@pytest.mark.parametrize("action", ["Archive", "Delete"])
@pytest.mark.slow
def test_it_can_be_taken_back_where_the_news_of_it_comes_before_the_answer(
    page: Page, site: Site, row: Row, action: str
) -> None:
    conversation_id = site.create(title="Put away slowly")
    page.goto("/")
    held = Held(page, re.compile("/(archive|delete)$"))
    open_actions(row(conversation_id))
    row(conversation_id).get_by_role("button", name=action, exact=True).click()
    request = held.first()
    answer = request.fetch()
    expect(row(conversation_id)).to_have_count(0)
    request.fulfill(response=answer)
    page.unroute_all()
    page.get_by_role("button", name="Undo").click()
    expect(row(conversation_id)).to_have_count(1)


@pytest.mark.slow
def test_a_row_that_was_asked_for_before_it_went_does_not_come_back(page: Page, site: Site, row: Row) -> None:
    another_id, conversation_id = site.create(title="Stays"), site.create(title="Goes")
    page.goto("/")
    _is_live(page, site, another_id)
    held = Held(page, re.compile(f"/rows.*{conversation_id}"), times=1)
    site.rename(conversation_id, "Goes soon")
    request = held.first()
    answer = request.fetch()
    site.delete(conversation_id)
    expect(row(conversation_id)).to_have_count(0)
    request.fulfill(response=answer)
    site.rename(another_id, "Stays on")
    expect(row(another_id)).to_contain_text("Stays on")
    expect(row(conversation_id)).to_have_count(0)


@pytest.mark.slow
def test_a_row_that_is_pinned_elsewhere_keeps_the_focus(page: Page, site: Site, row: Row) -> None:
    conversation_id = site.create(title="Goes up where nothing else is pinned")
    page.goto("/?q=Goes+up+where+nothing")
    tab = page.context.new_page()
    tab.goto("/")
    row(conversation_id).locator("a.open").focus()
    open_actions(row(conversation_id, tab))
    row(conversation_id, tab).get_by_role("button", name="Pin").click()
    expect(page.get_by_role("region", name="Pinned").locator(f"#row-{conversation_id}")).to_be_visible()
    expect(row(conversation_id).locator("a.open")).to_be_focused()


def _is_live(page: Page, site: Site, conversation_id: str) -> None:
    """Wait until the list has shown what was heard of."""
    site.rename(conversation_id, "Heard of")
    expect(page.locator(f"#row-{conversation_id}")).to_contain_text("Heard of")


def test_what_is_put_away_is_away_in_another_tab(page: Page, site: Site, row: Row) -> None:
    conversation_id = site.create(title="Away everywhere")
    page.goto("/")
    tab = page.context.new_page()
    tab.goto("/")
    open_actions(row(conversation_id))
    row(conversation_id).get_by_role("button", name="Delete").click()
    expect(row(conversation_id, tab)).to_have_count(0)


def test_what_begins_elsewhere_comes_by_itself_and_is_marked_unread(page: Page, site: Site, row: Row) -> None:
    page.goto("/")
    conversation_id = site.create(title="Begun by a script")
    site.record(conversation_id, [message("Something to read", source="agent")])
    expect(row(conversation_id)).to_contain_text("Something to read")
    expect(row(conversation_id)).to_contain_text("New")
    row(conversation_id).locator("a.open").click()
    Talk(page, site, conversation_id).is_connected()
    expect(row(conversation_id)).not_to_contain_text("New")


def test_titles_are_found_while_one_types(page: Page, site: Site, row: Row) -> None:
    wanted, other = site.create(title="Fix the aardvark"), site.create(title="Feed the zebra")
    page.goto("/")
    page.get_by_label("Find by title").press_sequentially("aardvark")
    expect(row(other)).to_have_count(0)
    expect(row(wanted)).to_have_count(1)


def test_what_is_typed_before_the_scripts_run_is_looked_for(page: Page, site: Site, row: Row) -> None:
    wanted, other = site.create(title="Comb the yak"), site.create(title="Wash the gnu")
    held = Held(page, "**/web/htmx*.js")
    page.goto("/", wait_until="commit")
    page.get_by_label("Find by title").fill("yak")
    script = held.first()
    with page.expect_request(lambda request: "/rows?q=yak" in request.url and "&id=" not in request.url):
        script.continue_()
    expect(row(other)).to_have_count(0)
    expect(row(wanted)).to_have_count(1)


def test_a_list_that_is_not_live_says_so(page: Page, site: Site) -> None:
    page.goto("/settings")
    line = page.locator("#cut-off")
    expect(line).to_have_text("")
    site.kill()
    expect(line).to_have_text("Not connected. This list may be out of date.")
    expect(line).to_be_visible()
    site.open()
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(line).to_have_text("")


def test_a_list_says_that_nobody_is_logged_in_any_more(page: Page) -> None:
    page.route_web_socket(re.compile("/ws/conversations$|[?]since="), lambda socket: socket.close(code=4401))
    page.goto("/settings")
    expect(page.locator("#cut-off")).to_have_text("You have been logged out. Reload the page to log in.")


LIST_SOCKET = re.compile("/ws/conversations[?]since=")


def until_asked(page: Page, asked: list[str], times: int) -> None:
    """Wait until the list's socket was opened so often."""
    deadline = time.monotonic() + WAIT_S
    while len(asked) < times:
        assert time.monotonic() < deadline
        page.wait_for_timeout(10)


def test_a_list_goes_on_from_the_cursor_that_it_was_told_last(page: Page, site: Site) -> None:
    asked: list[str] = []

    def restart(socket: WebSocketRoute) -> None:
        asked.append(socket.url)
        if len(asked) == 1:
            socket.send(
                json.dumps({"type": "hello", "now": "2026-11-20T12:00:00.000000Z", "cursor": "MTA0Mg"})
            )
            socket.close(code=1012)

    page.route_web_socket(LIST_SOCKET, restart)
    page.goto("/settings")
    until_asked(page, asked, 2)
    assert "since=MTA0Mg" not in asked[0]
    assert asked[1].endswith("since=MTA0Mg")


@pytest.mark.slow
def test_a_list_of_another_history_is_loaded_anew(page: Page, site: Site) -> None:
    asked: list[str] = []

    def be_another(socket: WebSocketRoute) -> None:
        asked.append(socket.url)
        if len(asked) == 1:
            socket.send(
                json.dumps({"type": "error", "code": "cursor_ahead", "detail": "Another.", "id": None})
            )
        else:
            socket.connect_to_server()

    page.route_web_socket(LIST_SOCKET, be_another)
    page.goto("/settings")
    until_asked(page, asked, 2)
    expect(page.locator("#cut-off")).to_have_text("")


@pytest.mark.slow
def test_that_a_list_is_not_live_is_read_aloud_once(talk: Talk, page: Page) -> None:
    expect(page.locator("#cut-off")).not_to_have_attribute("role", "status")
    page.goto("/settings")
    expect(page.locator("#cut-off")).to_have_attribute("role", "status")


@pytest.mark.slow
def test_a_draft_typed_in_one_tab_appears_in_the_other(talk: Talk, another_tab: Talk) -> None:
    talk.box.press_sequentially("typed here, read there")
    expect(another_tab.box).to_have_value("typed here, read there")


def test_a_row_says_how_its_agent_stands(page: Page, site: Site, row: Row) -> None:
    page.goto("/")
    conversation_id = site.create(title="Waiting for a decision")
    site.send(conversation_id, {"type": "message", "text": "/approve"})
    expect(row(conversation_id)).to_contain_text("Needs your approval")


def test_the_list_stands_in_the_same_place_beside_every_page(page: Page, site: Site) -> None:
    places = set()
    for path in ("/", "/search", "/settings"):
        page.goto(path)
        box = page.locator("#find").bounding_box()
        assert box is not None
        places.add((box["x"], box["y"], box["width"]))
    assert len(places) == 1


@pytest.mark.slow
def test_a_title_has_the_room_of_a_button_that_is_not_shown_and_is_told_in_full(
    page: Page, site: Site, row: Row
) -> None:
    title = "A title of so many words that no list has room for them all"
    conversation_id = site.create(title=title)
    page.goto("/")
    page.mouse.move(800, 500)
    words = row(conversation_id).locator(".title")
    expect(words).to_have_attribute("title", title)
    alone = page.evaluate(_WIDTH, conversation_id)
    row(conversation_id).hover()
    assert page.evaluate(_WIDTH, conversation_id) < alone - 20


_WIDTH = "(id) => document.querySelector(`#row-${id} .title`).getBoundingClientRect().width"
