"""Hostile text, in every place that shows text, in a browser that would obey it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from conversations.events import EventEnvelope
from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.data.hostile import HOSTILE, HUGE, Hostile
from tests.support.wires import event_places

pytestmark = once

STRETCH = 40
SOME = HOSTILE[::4]
"""Enough for what is typed and sent, which shows text in one way; events go through all of it."""


def test_hostile_events_do_nothing(page: Page, site: Site) -> None:
    conversation_id = site.create(title="Hostile")
    site.record(conversation_id, [_payload(each) for each in _events()])
    count = len(list(_events()))
    talk = Talk(page, site, conversation_id)
    for around in range(STRETCH // 2, count, STRETCH):
        talk.open(f"?around={around}")
        _open_all(page)
        _did_nothing(page)


def test_hostile_messages_and_titles_do_nothing(talk: Talk) -> None:
    for each in SOME:
        talk.say(each.block)
        talk.site.rename(talk.id, "".join(filter(str.isprintable, each.line))[:200])
        expect(talk.page.locator("#title")).to_contain_text(each.mark)
    expect(talk.unsent).to_have_count(0)
    expect(talk.messages("user").filter(has_text=SOME[-1].mark)).to_have_count(1)
    _did_nothing(talk.page)
    talk.page.reload()
    talk.is_connected()
    _did_nothing(talk.page)


@pytest.mark.slow
def test_huge_text_shows_its_beginning(page: Page, site: Site) -> None:
    conversation_id = site.create(title="Huge")
    for each in HUGE:
        site.record(conversation_id, [message(each.block)], key=each.name)
    talk = Talk(page, site, conversation_id)
    for seq, each in enumerate(HUGE):
        talk.open(f"?around={seq}#e{seq}")
        expect(page.locator(f"#e{seq}")).to_contain_text(each.mark)
        expect(page.locator(f"#e{seq}")).to_be_in_viewport()
        _did_nothing(page)


def test_hostile_titles_do_nothing_in_the_list_the_palette_and_what_is_found(page: Page, site: Site) -> None:
    for each in SOME:
        title = "".join(filter(str.isprintable, each.line))[:200]
        site.record(site.create(title=title), [message(f"hostile words {title}")])
    page.goto("/")
    expect(page.locator("#rows .title").filter(has_text=SOME[-1].mark).first).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("here-")
    expect(page.locator("#palette").get_by_role("option").filter(has_text="here-").first).to_be_visible()
    _ran_nothing(page)
    page.goto("/search?q=hostile+words")
    expect(page.locator("#hits mark").first).to_be_visible()
    _ran_nothing(page)


def test_a_hostile_file_name_does_nothing(talk: Talk) -> None:
    attached = talk.page.locator("#composer .images > li")
    for each in SOME:
        talk.page.evaluate(_DROP, each.line.replace("/", "\N{DIVISION SLASH}"))  # no name has the other one
        expect(attached).to_contain_text(each.mark)
        _did_nothing(talk.page)
        attached.get_by_role("button").last.click()
        expect(attached).to_have_count(0)


def _ran_nothing(page: Page) -> None:
    found = "() => [window.hacked, document.querySelectorAll('body :is(script, iframe)').length]"
    assert page.evaluate(found) == [None, 0]


_DROP = """
(name) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File(["x"], name, { type: "text/html" }));
  const options = { bubbles: true, cancelable: true, dataTransfer };
  document.querySelector("#text").dispatchEvent(new DragEvent("drop", options));
}
"""


def _events() -> Iterable[EventEnvelope]:
    """Return every hostile text, each in one place after the other, and every place."""
    places = [event_places.blocks, event_places.lines]
    for number, each in enumerate(HOSTILE):
        for made in places:
            found = list(made(_text(each, made is event_places.lines)).values())
            yield from (found[(number + step) % len(found)] for step in (0, len(found) // 2))


def _text(hostile: Hostile, is_line: bool) -> str:
    return hostile.line if is_line else hostile.block


def _payload(event: EventEnvelope) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(event["payload"])
    payload.pop("id", None)
    return payload


def _open_all(page: Page) -> None:
    page.evaluate("() => { for (const each of document.querySelectorAll('#log details')) each.open = true }")


def _did_nothing(page: Page) -> None:
    """Check that no script ran and nothing of the page came from a text; the watch sees the rest."""
    assert page.evaluate(_FOUND) == [None, 0, 0, 0, False]


_FOUND = """
() => {
  const count = (selector) => document.querySelectorAll(selector).length;
  const links = [...document.querySelectorAll("#log a[href]")];
  return [
    window.hacked,
    count("#log :is(script, style, iframe, object, embed, link, meta, base, form, input)"),
    count("#log :is([style], [onerror], [onload], [onclick])"),
    links.filter(({ protocol }) => !/^(https?|mailto):$/.test(protocol)).length,
    document.documentElement.scrollWidth > innerWidth,
  ];
}
"""
