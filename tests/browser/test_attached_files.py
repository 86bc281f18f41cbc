"""Files of a message in the box: chosen, dropped and pasted, sent, and long pastes that become files."""

from __future__ import annotations

import base64

import pytest
from playwright.sync_api import FilePayload, Locator, Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.data.documents import encrypted, pdf

pytestmark = once

REPORT = pdf([f"Page {number} of the report" for number in range(1, 4)])
LONG = "A long text to be pasted.\n" * 400
_GIVE = """([way, content, type, name]) => {
  const given = new DataTransfer();
  const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
  given.items.add(new File([bytes], name, { type }));
  const box = document.querySelector("#text");
  const pasted = new ClipboardEvent("paste", { clipboardData: given, bubbles: true });
  if (way === "paste") box.dispatchEvent(pasted);
  else box.dispatchEvent(new DragEvent("drop", { dataTransfer: given, bubbles: true, cancelable: true }));
}"""
_PASTE = """(text) => {
  const given = new DataTransfer();
  given.setData("text/plain", text);
  const pasted = new ClipboardEvent("paste", { clipboardData: given, bubbles: true, cancelable: true });
  document.querySelector("#text").dispatchEvent(pasted);
}"""


def chips(page: Page) -> Locator:
    return page.get_by_role("list", name="Attached").get_by_role("listitem")


def choose(page: Page, name: str, content: bytes) -> None:
    file = FilePayload(name=name, mimeType="application/octet-stream", buffer=content)
    page.locator("#composer [type=file]").set_input_files([file])


def test_a_chosen_file_is_a_chip_with_its_pages_and_goes_out_with_the_message(talk: Talk) -> None:
    choose(talk.page, "report.pdf", REPORT)
    expect(chips(talk.page)).to_contain_text("3 pages")
    talk.say("What is this?")
    talk.answered("You said: What is this?")
    expect(chips(talk.page)).to_have_count(0)
    sent = talk.messages("user").locator(".attached li")
    expect(sent).to_contain_text("report.pdf")
    expect(sent).to_contain_text("3 pages")
    sent.get_by_text("report.pdf").click()
    expect(sent).to_contain_text("Page 2 of the report")
    with talk.page.expect_download() as download:
        sent.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == REPORT


@pytest.mark.parametrize("way", ["paste", "drop"])
@pytest.mark.sampled(1)
def test_a_file_is_taken_by_paste_and_drop_and_says_what_cannot_be_read(talk: Talk, way: str) -> None:
    secret = base64.b64encode(encrypted(REPORT, "password")).decode()
    talk.page.evaluate(_GIVE, [way, secret, "application/pdf", "secret.pdf"])
    expect(chips(talk.page)).to_contain_text("it is encrypted; remove its password")
    talk.page.get_by_role("button", name="Remove secret.pdf").click()
    expect(chips(talk.page)).to_have_count(0)


@pytest.mark.slow
def test_files_of_a_draft_are_there_on_another_device(talk: Talk, another_tab: Talk) -> None:
    choose(talk.page, "notes.md", b"# Notes\n")
    expect(chips(talk.page)).to_contain_text("notes.md")
    expect(chips(another_tab.page)).to_contain_text("notes.md")
    another_tab.say("Read them")
    another_tab.answered("You said: Read them")
    expect(talk.messages("user").locator(".attached")).to_contain_text("notes.md")
    expect(chips(talk.page)).to_have_count(0)


def test_a_file_of_the_first_message_goes_to_the_conversation_that_begins(page: Page, site: Site) -> None:
    page.goto("/new")
    choose(page, "notes.md", b"# Notes\n\nBuy milk.\n")
    expect(chips(page)).to_contain_text("notes.md")
    page.get_by_label("Message", exact=True).fill("Read this")
    page.keyboard.press("Enter")
    sent = page.locator("#events article.message.user .attached")
    expect(sent).to_contain_text("notes.md")
    sent.get_by_text("notes.md").click()
    expect(sent).to_contain_text("Buy milk.")
    expect(sent.get_by_role("link", name="Download")).to_be_visible()


def test_a_long_paste_becomes_a_file_and_text_again(talk: Talk) -> None:
    talk.box.fill("Before")
    talk.page.evaluate(_PASTE, LONG)
    expect(chips(talk.page)).to_contain_text("Pasted text.txt")
    expect(talk.box).to_have_value("Before")
    talk.page.get_by_role("button", name="Put back as text").click()
    expect(talk.box).to_have_value(f"Before\n\n{LONG}")
    expect(chips(talk.page)).to_have_count(0)
    talk.box.fill("And now as a file")
    talk.page.evaluate(_PASTE, LONG)
    expect(chips(talk.page)).to_have_count(1)
    talk.box.press("Enter")
    talk.answered("You said: And now as a file")
    expect(talk.messages("user").locator(".attached")).to_contain_text("Pasted text.txt")


def test_a_text_that_is_too_large_to_be_kept_is_attached_by_its_beginning(talk: Talk) -> None:
    rows = base64.b64encode(b"name,price\n" + b"pear,2.50\n" * 100).decode()
    grown = """([content, times]) => {
      const given = new DataTransfer();
      const part = atob(content);
      given.items.add(new File(new Array(times).fill(part), "fruit.csv", { type: "text/csv" }));
      const box = document.querySelector("#text");
      box.dispatchEvent(new DragEvent("drop", { dataTransfer: given, bubbles: true, cancelable: true }));
    }"""
    talk.page.evaluate(grown, [rows, 20_000])
    expect(chips(talk.page)).to_contain_text("19.3 MB. Only its beginning is here")
    talk.say("How much is a pear?")
    talk.answered("You said: How much is a pear?")
    expect(talk.messages("user").locator(".attached")).to_contain_text("Only its beginning is here")


@pytest.mark.slow
def test_a_message_that_the_agent_did_not_answer_is_said_again_with_its_files(talk: Talk) -> None:
    choose(talk.page, "notes.md", b"# Notes\n")
    expect(chips(talk.page)).to_contain_text("notes.md")
    talk.say("slow: " + "word " * 200)
    expect(talk.streaming).to_contain_text("word")
    talk.page.get_by_role("button", name="Stop").click()
    again = talk.page.get_by_role("button", name="Retry").first
    again.click()
    sent = talk.messages("user").locator(".attached")
    expect(sent).to_have_count(2)
    expect(sent.last).to_contain_text("notes.md")
