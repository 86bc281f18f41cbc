"""All of it by the keyboard alone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once


def test_a_conversation_is_begun_steered_and_left_by_keys(page: Page) -> None:
    keys = page.keyboard
    page.goto("/")
    keys.type("/approve")
    keys.press("Enter")
    expect(page.get_by_role("group", name="The agent asks for your approval")).to_be_visible()
    expect(page.locator("#events article.tool_call .state.waiting")).to_be_visible()
    expect(page.locator("#connection .words")).to_have_text("Connected")
    expect(page.get_by_role("button", name="Approve")).to_be_enabled()  # the call was seen to its end
    keys.press("Escape")
    keys.press("a")
    expect(page.locator("#events article.message.agent")).to_contain_text("Done.")
    keys.press("c")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    keys.type("slow: ")
    keys.insert_text(" ".join(f"word{number}" for number in range(200)))  # as held keys would, at once
    keys.press("Enter")
    expect(page.locator("#answers article")).to_contain_text("word2")
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    keys.press("Escape")
    keys.press("s")
    expect(page.locator("#agent-state")).to_contain_text("Stopped")
    keys.press("n")
    expect(page).to_have_url("/new")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()


@pytest.mark.slow
def test_what_is_done_to_a_conversation_in_the_list_is_done_by_keys(page: Page, site: Site) -> None:
    conversation_id = site.create(title="By keys alone")
    keys, row = page.keyboard, page.locator(f"#row-{conversation_id}")
    page.goto("/")
    with page.expect_request_finished(lambda request: "/web/row_focus" in request.url):
        keys.press("Shift")  # the first key of a page fetches what brings the focus back

    def reach(name: str) -> None:
        """Open what can be done with the conversation, and go forward to one of it."""
        row.locator("a.open").focus()
        expect(row.locator(".actions > summary")).to_have_attribute("tabindex", "-1")  # the list hears keys
        keys.press("m")
        passed = []
        for _ in range(12):
            if _focused(page) == name:
                return
            passed.append(_focused(page))
            keys.press("Tab")
        raise AssertionError(f"{name} was not among {passed}")

    reach("Title")
    keys.press("Control+a")
    keys.type("Renamed by keys")
    keys.press("Enter")
    expect(row.locator(".title")).to_have_text("Renamed by keys")
    expect(row.locator("a.open")).to_be_focused()
    reach("Pin")
    keys.press("Enter")
    expect(page.get_by_role("region", name="Pinned").locator(f"#row-{conversation_id}")).to_be_visible()
    expect(row.locator("a.open")).to_be_focused()
    for action in ("Archive", "Delete"):
        reach(action)
        keys.press("Enter")
        expect(row).to_have_count(0)
        expect(page.get_by_role("button", name="Undo")).to_be_visible()
        keys.press("z")
        expect(row).to_have_count(1)


@pytest.mark.slow
def test_an_event_is_searched_for_and_found_by_keys(page: Page, site: Site) -> None:
    conversation_id = site.create(title="Where it stands")
    word = f"xyzzy{conversation_id[:8]}"
    site.record(conversation_id, [message("Good morning"), message(word), message("Good night")])
    keys = page.keyboard
    page.goto("/")
    page.locator("#text").press("Escape")
    keys.press("Control+k")
    keys.type(word)
    expect(page.locator("#palette").get_by_role("option").first).to_contain_text(word)
    keys.press("Enter")
    expect(page.locator("#hits mark")).to_have_text(word)
    page.locator("#q").focus()
    _tab_to(page, word)
    keys.press("Enter")
    expect(page.locator("#e1.marked")).to_contain_text(word)


@pytest.mark.slow
def test_one_key_leads_to_the_titles_and_one_to_all_messages(page: Page, site: Site) -> None:
    page.goto("/settings")
    page.keyboard.press("/")
    expect(page.get_by_label("Find by title")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    expect(page).to_have_url("/search")


@pytest.mark.slow
def test_a_key_that_is_held_acts_once(page: Page, site: Site) -> None:
    page.goto("/settings")
    page.evaluate("window.heard = []; document.addEventListener('key', ({ detail }) => heard.push(detail))")
    for _ in range(3):
        page.keyboard.down("s")
    page.keyboard.up("s")
    for _ in range(3):
        page.keyboard.down("/")
    page.keyboard.up("/")
    assert page.evaluate("heard") == ["s"]
    expect(page.get_by_label("Find by title")).to_be_focused()
    expect(page.get_by_label("Find by title")).to_have_value("")


@pytest.mark.slow
def test_a_key_that_is_held_writes_nothing_into_the_page_that_it_leads_to(page: Page, site: Site) -> None:
    page.goto("/settings")
    page.keyboard.down("n")
    page.wait_for_url("**/new")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    for _ in range(2):
        page.keyboard.down("n")
    page.keyboard.up("n")
    page.keyboard.type("no")
    expect(page.get_by_label("Message", exact=True)).to_have_value("no")


def test_no_key_acts_on_what_is_behind_a_dialog(page: Page, site: Site) -> None:
    page.goto("/settings")
    page.evaluate("window.heard = []; document.addEventListener('key', ({ detail }) => heard.push(detail))")
    page.keyboard.press("?")
    page.evaluate("document.activeElement.blur()")  # as a click on its text does in some browsers
    page.keyboard.press("a")
    page.keyboard.press("/")
    assert page.evaluate("heard") == ["?"]
    expect(page.get_by_label("Find by title")).not_to_be_focused()


def _tab_to(page: Page, name: str) -> None:
    for _ in range(60):
        if name in _focused(page):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{name} was not reached")


def _focused(page: Page) -> str:
    name: str = page.evaluate(
        "() => { const it = document.activeElement;"
        " return it === document.body ? '' : it.ariaLabel || it.innerText.trim() }"
    )
    return name


@pytest.mark.parametrize("path", ["/", "/settings", "a conversation"])
@pytest.mark.sampled(1)
def test_the_focus_is_always_to_be_seen(page: Page, site: Site, path: str) -> None:
    if path == "a conversation":
        Talk(page, site, site.create(title="To be walked through")).open()
    else:
        page.goto(path)
    seen: set[str] = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        name, is_seen = page.evaluate(_FOCUS)
        assert is_seen, name
        if name in seen and len(seen) > 5:
            break
        seen.add(name)


_FOCUS = """
() => {
  const it = document.activeElement;
  const box = it.getBoundingClientRect();
  const { outlineStyle, outlineWidth } = getComputedStyle(it);
  const around = it.closest(".box") ? getComputedStyle(it.closest(".box")).boxShadow : "none";
  const isMarked = (outlineStyle !== "none" && outlineWidth !== "0px") || around !== "none";
  const isThere = box.width > 0 && box.bottom > 0 && box.top < innerHeight && box.right > 0;
  return [it.outerHTML.slice(0, 160), it === document.body || (isMarked && isThere)];
}
"""
