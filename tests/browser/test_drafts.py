"""What is being written: it outlives reloads and crashes, and is the same on all devices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Response, expect

from tests.browser.conftest import Browse
from tests.browser.talk import Held, Talk
from tests.conftest import once

pytestmark = once

IS_KEPT = "/draft"
TOO_BIG_BYTES = 4_000_000
"""Written in base64, more than the 5 Mi characters that a browser's storage holds."""


@pytest.fixture
def other(browse: Browse, talk: Talk) -> Callable[[], Talk]:
    """Open the conversation on another device."""
    return lambda: Talk(browse().new_page(), talk.site, talk.id).open()


def test_a_draft_outlives_a_reload(talk: Talk) -> None:
    talk.box.fill("half a sentence")
    talk.page.reload()
    expect(talk.box).to_have_value("half a sentence")


def test_a_draft_is_there_on_another_device(talk: Talk, other: Callable[[], Talk]) -> None:
    write(talk, "begun at the desk")
    expect(other().box).to_have_value("begun at the desk")


def test_a_draft_written_without_a_server_outlives_its_page(talk: Talk, other: Callable[[], Talk]) -> None:
    talk.site.kill()
    talk.box.fill("written on a train")
    page = talk.page.context.new_page()
    talk.page.close()
    talk.site.open()
    again = Talk(page, talk.site, talk.id)
    with page.expect_response(is_stored):
        again.open()
    expect(again.box).to_have_value("written on a train")
    expect(other().box).to_have_value("written on a train")


@pytest.mark.no_second_try
def test_of_two_drafts_neither_is_lost(talk: Talk, other: Callable[[], Talk]) -> None:
    talk.page.context.set_offline(True)
    expect(talk.line).to_contain_text("Offline")
    talk.box.fill("written here")
    there = other()
    write(there, "written there")
    talk.page.context.set_offline(False)
    copy = talk.page.get_by_text("You have another draft from a different device: “written there”")
    expect(copy).to_be_visible()
    expect(talk.box).to_have_value("written here")
    talk.page.reload()
    expect(copy).to_be_visible()
    talk.page.get_by_role("button", name="Use it").click()
    expect(talk.box).to_have_value("written here\n\nwritten there")
    expect(copy).to_be_hidden()


@pytest.mark.slow
def test_a_copy_is_offered_until_somebody_takes_it_and_grows_with_the_next(
    talk: Talk, other: Callable[[], Talk]
) -> None:
    talk.page.context.set_offline(True)
    expect(talk.line).to_contain_text("Offline")
    talk.box.fill("written here")
    there = other()
    write(there, "written there")
    talk.page.context.set_offline(False)
    copy = talk.page.locator(".conflict p")
    expect(copy).to_contain_text("“written there”")
    talk.page.reload()
    expect(copy).to_contain_text("“written there”")
    expect(there.box).to_have_value("written here")
    write(talk, "written here again")
    talk.page.reload()
    expect(copy).to_contain_text("“written there”")
    talk.page.context.set_offline(True)
    expect(talk.line).to_contain_text("Offline")
    talk.box.fill("and once more")
    expect(there.box).to_have_value("written here again")
    write(there, "there, too")
    talk.page.context.set_offline(False)
    expect(copy).to_contain_text("there, too")
    talk.page.get_by_role("button", name="Use it").click()
    expect(talk.box).to_have_value("and once more\n\nwritten there\n\nthere, too")


@pytest.mark.slow
def test_what_is_typed_before_the_scripts_run_stays(talk: Talk) -> None:
    write(talk, "an older draft")
    script = Held(talk.page, "**/composer*.js")
    talk.page.reload(wait_until="commit")
    talk.page.wait_for_selector("#text")
    talk.box.fill("typed at once")
    expect(talk.box).to_have_value("typed at once")
    script.first().continue_()
    talk.is_connected()
    expect(talk.page.locator(".conflict p")).to_contain_text("“an older draft”")
    expect(talk.box).to_have_value("typed at once")
    talk.page.unroute_all()
    talk.page.reload()
    talk.is_connected()
    expect(talk.box).to_have_value("typed at once")


@pytest.mark.slow
def test_images_that_no_browser_storage_holds_stay_in_the_draft(talk: Talk) -> None:
    with talk.page.expect_response(is_stored):
        talk.page.evaluate(_PASTE_BIG_IMAGE, TOO_BIG_BYTES)
    expect(talk.page.get_by_role("img", name="Image 1")).to_be_visible()
    talk.page.reload()
    expect(talk.page.get_by_role("img", name="Image 1")).to_be_visible()
    write(talk, "and a word")
    talk.page.reload()
    expect(talk.page.get_by_role("img", name="Image 1")).to_be_visible()
    expect(talk.box).to_have_value("and a word")


@pytest.mark.slow
def test_a_draft_that_no_browser_storage_holds_leaves_no_older_one(talk: Talk) -> None:
    assert talk.page.evaluate(_KEEP_TOO_MUCH) is None


@pytest.mark.slow
def test_a_draft_is_let_go_of_where_storage_is_denied(talk: Talk) -> None:
    talk.page.add_init_script(_DENY_STORAGE)
    talk.page.reload()
    assert talk.page.evaluate(_KEEP_NOTHING) is None


@pytest.mark.slow
def test_a_message_waits_for_the_images_of_its_draft(talk: Talk) -> None:
    write(talk, "Look at this")
    with talk.page.expect_response(is_stored):
        talk.page.evaluate(_PASTE_BIG_IMAGE, TOO_BIG_BYTES)
    fetching = Held(talk.page, "**/draft", times=1)
    talk.page.reload()
    talk.is_connected()
    talk.box.press("Enter")
    note = talk.page.locator("#composer .note")
    expect(note).to_have_text("Attachments are still loading. Send your message in a moment.")
    expect(talk.unsent).to_have_count(0)
    fetching.first().continue_()
    expect(talk.page.get_by_role("img", name="Image 1")).to_be_visible()
    expect(note).to_have_text("")
    talk.box.press("Enter")
    talk.answered("You said: Look at this")
    expect(talk.messages("user").get_by_role("img")).to_have_count(1)


@pytest.mark.slow
def test_an_image_that_is_added_before_those_of_the_draft_are_back_stands_beside_them(talk: Talk) -> None:
    with talk.page.expect_response(is_stored):
        talk.page.evaluate(_PASTE_BIG_IMAGE, TOO_BIG_BYTES)
    held = Held(talk.page, "**/draft", times=1)
    talk.page.reload()
    fetching = held.first()
    talk.page.evaluate(_PASTE_BIG_IMAGE, 10)
    expect(talk.page.get_by_role("img", name="Image 1")).to_be_visible()
    with talk.page.expect_response(is_stored):
        fetching.continue_()
        expect(talk.page.get_by_role("img", name="Image 2")).to_be_visible()
    talk.page.reload()
    expect(talk.page.get_by_role("img", name="Image 2")).to_be_visible()


@pytest.mark.slow
def test_a_message_that_was_sent_is_no_draft_any_more(talk: Talk, other: Callable[[], Talk]) -> None:
    write(talk, "said")
    talk.box.press("Enter")
    talk.answered("You said: said")
    expect(talk.box).to_have_value("")
    talk.page.reload()
    talk.is_connected()
    expect(talk.box).to_have_value("")
    there = other()
    expect(there.messages("user")).to_have_count(1)
    expect(there.box).to_have_value("")


def test_a_first_message_is_no_draft_any_more(page: Page) -> None:
    page.goto("/")
    box = page.get_by_label("Message", exact=True)
    box.fill("Let us begin")
    box.press("Enter")
    expect(page.locator("#events article.message.user")).to_be_visible()
    page.goto("/")
    expect(box).to_have_value("")


def write(talk: Talk, text: str) -> None:
    """Write a draft and wait until the server has it: an earlier one may still be on its way."""
    with talk.page.expect_response(
        lambda answer: is_stored(answer) and text in (answer.request.post_data or "")
    ):
        talk.box.fill(text)


def is_stored(answer: Response) -> bool:
    """Tell whether the server has taken a draft."""
    return IS_KEPT in answer.url and answer.request.method == "PUT" and answer.ok


# The page's own class: what it has of a draft after one that was too large.
_KEEP_TOO_MUCH = """
async () => {
  const names = performance.getEntriesByType("resource").map(({ name }) => name);
  const { Mirror } = await import(names.find((name) => name.includes("/web/mirror")));
  const mirror = new Mirror("somebody", "somewhere");
  const draft = { version: 1, images: [], isDirty: true };
  mirror.draft = { ...draft, text: "an older one" };
  mirror.draft = { ...draft, text: "x".repeat(6_000_000) };
  return mirror.draft ?? null;
}
"""

_KEEP_NOTHING = """
async () => {
  const names = performance.getEntriesByType("resource").map(({ name }) => name);
  const { Mirror } = await import(names.find((name) => name.includes("/web/mirror")));
  const mirror = new Mirror("somebody", "somewhere");
  mirror.draft = { text: "", images: [] };
  mirror.copy = undefined;
  return mirror.draft ?? null;
}
"""

_DENY_STORAGE = """
for (const name of ["getItem", "setItem", "removeItem"]) {
  Storage.prototype[name] = () => { throw new DOMException("Denied.", "SecurityError"); };
}
"""

# A picture with as many bytes behind it as are asked for.
_PASTE_BIG_IMAGE = """
async (size) => {
  const canvas = new OffscreenCanvas(40, 30);
  canvas.getContext("2d").fillRect(0, 0, 40, 30);
  const picture = await canvas.convertToBlob({ type: "image/png" });
  const transfer = new DataTransfer();
  transfer.items.add(new File([picture, new Uint8Array(size)], "big.png", { type: "image/png" }));
  const options = { bubbles: true, cancelable: true, clipboardData: transfer };
  document.querySelector("#text").dispatchEvent(new ClipboardEvent("paste", options));
}
"""
