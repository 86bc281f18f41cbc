"""Keys that an input method takes for itself are no commands to a page, in Safari's order of events either.

Safari ends a composition before the key that has ended it. Only the key's code then says that the page is not
meant.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

COMPOSING = {"isComposing": True, "keyCode": 229}
SAFARI = {"isComposing": False, "keyCode": 229}
ENTERED = "京都へ行く"
_COMPOSE = """(field, [text, key, order]) => {
  const composed = (type, data) => field.dispatchEvent(new CompositionEvent(type, { data, bubbles: true }));
  const ends = () => {
    composed("compositionend", text);
    field.value = text;
    field.dispatchEvent(new InputEvent("input", { bubbles: true }));
  };
  field.focus();
  composed("compositionstart", "");
  field.value = "きょうとへいく";
  composed("compositionupdate", field.value);
  field.dispatchEvent(new InputEvent("input", { bubbles: true, isComposing: true }));
  if (!order.isComposing) ends();
  field.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...order }));
  if (order.isComposing) ends();
}"""

COUNT_SUBMITS = """() => {
  window.submits = 0;
  const count = (event) => {
    if (event.type === "click" && !event.target.closest("[type=submit]")) return;
    submits += 1;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  for (const type of ["submit", "click"]) addEventListener(type, count, { capture: true });
}"""


def compose(field: Locator, key: str, order: Mapping[str, object]) -> None:
    """Write ENTERED with an input method, which this key ends."""
    field.evaluate(_COMPOSE, [ENTERED, key, order])


def enter_as_code_229(page: Page) -> None:
    """Press Enter as a browser does that also sends a form by it."""
    devtools = page.context.new_cdp_session(page)
    key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229, "text": "\r"}
    devtools.send("Input.dispatchKeyEvent", {"type": "keyDown", **key})
    devtools.send("Input.dispatchKeyEvent", {"type": "keyUp", **key})
    devtools.detach()


def test_a_composed_word_is_not_sent_before_it_is_meant(talk: Talk, subtests: pytest.Subtests) -> None:
    for order in (COMPOSING, SAFARI):
        with subtests.test(order=order):
            compose(talk.box, "Enter", order)
            expect(talk.box).to_have_value(ENTERED)
            expect(talk.unsent).to_have_count(0)
    talk.box.press("Enter")
    talk.answered("You said")
    assert talk.site.said(talk.id) == [ENTERED]


def test_a_composed_reason_decides_nothing_before_it_is_meant(talk: Talk, subtests: pytest.Subtests) -> None:
    talk.say("/approve")
    talk.asked()
    reason = talk.page.get_by_label("Reason")
    for order in (COMPOSING, SAFARI):
        with subtests.test(order=order):
            compose(reason, "Enter", order)
            expect(reason).to_have_value(ENTERED)
            expect(talk.approval.get_by_role("button", name="Reject")).to_be_enabled()
    press = """(key) => {
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key, keyCode: 229, bubbles: true }));
    }"""
    for key in ("a", "r"):  # the same outside of fields: an input method may be on there
        talk.page.evaluate(press, key)
    reason.press("Enter")
    expect(talk.page.locator("#events article.tool_call .results")).to_contain_text(ENTERED)


def test_a_composed_word_moves_nothing_in_the_palette(
    page: Page, site: Site, subtests: pytest.Subtests
) -> None:
    conversation = site.create(title=ENTERED)
    page.goto("/")
    page.keyboard.press("Control+k")
    field = page.locator("#palette input")
    chosen = page.locator('#palette [role="option"][aria-selected="true"]')
    expect(chosen).to_have_count(1)
    for order in (COMPOSING, SAFARI):
        for key in ("Enter", "ArrowDown", "ArrowUp", "Escape"):
            with subtests.test(order=order, key=key):
                compose(field, key, order)
                expect(chosen).to_have_id("palette-option-0")
                expect(page.locator("#palette")).to_be_visible()
                assert page.url == f"{site.url}/"
    expect(page.locator("#palette-option-0")).not_to_contain_text("Search")  # the list has come
    field.press("Enter")
    expect(page).to_have_url(f"{site.url}/c/{conversation}")


def test_a_composed_word_sends_no_form(page: Page, site: Site, subtests: pytest.Subtests) -> None:
    conversation = site.create(title="A trip")
    forms = {
        "search": ("/search", "main input[name=q]"),
        "rename": ("/", f"#row-{conversation} .actions input[name=title]"),
        "label": (f"/c/{conversation}/labels", "#label"),
    }
    for name, (address, selector) in forms.items():
        with subtests.test(form=name):
            page.goto(address)
            if name == "rename":
                page.locator(f"#row-{conversation} .actions > summary").click()
            page.evaluate(COUNT_SUBMITS)
            page.locator(selector).fill(ENTERED)
            enter_as_code_229(page)
            assert page.evaluate("submits") == 0
            page.keyboard.press("Enter")
            assert page.evaluate("submits") == 1
