"""Tool servers in a browser: the test of a connection, and what a tool has returned."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from conversations import dialects
from conversations.events import Authored, Dialect
from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.browser.violations import violations_in_themes
from tests.conftest import once
from tests.support.servers.mcp_fixtures import PNG, WAV

pytestmark = once

ROOT = Path(__file__).parents[2]
FILES = (f"data:image/png;base64,{PNG}", f"data:audio/wav;base64,{WAV}", "data:text/csv;base64,YSxiCjEsMgo=")


NOTICE = "The tool server `maps` can't be used: it has ended.\n\nThe last lines of its standard error: none"
FAILING = """
import os
print("<b>maps</b>")
raise KeyError(f"No map for {os.environ['MAPS_KEY']}")
"""


@pytest.fixture
def settings(page: Page, site: Site) -> Iterator[Page]:
    """The page of settings, without a tool server before and after."""
    yield page
    remove = page.get_by_role("button", name="Remove maps")
    page.goto(f"{site.url}/settings")
    if remove.count():
        remove.click()
        expect(remove).to_have_count(0)


def added(page: Page, site: Site, *arguments: str) -> None:
    """Add a program as a person does."""
    page.goto(f"{site.url}/settings")
    page.get_by_text("Add local server").click()
    form = page.locator("form").filter(has=page.get_by_label("Command", exact=True))
    form.get_by_label("Name", exact=True).fill("maps")
    form.get_by_label("Command", exact=True).fill(sys.executable)
    form.get_by_label("Arguments (optional)").fill(" ".join(arguments))
    form.get_by_label("Environment (optional)").fill(f"PYTHONPATH={ROOT}\nMAPS_KEY=of-the-maps-1234")
    form.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("Tool server added.")).to_be_visible()


def tried(page: Page) -> Locator:
    """Test the connection; return what the page shows of it."""
    page.get_by_role("button", name="Test connection to maps").click()
    shown = page.locator(".trial")
    expect(shown).to_be_visible()
    return shown


def test_a_server_that_fails_with_a_traceback_shows_its_last_lines(
    settings: Page, site: Site, tmp_path: Path
) -> None:
    program = tmp_path / "maps.py"
    program.write_text(FAILING)
    added(settings, site, str(program))
    shown = tried(settings)
    expect(shown).to_contain_text("The tool server `maps` can't be used: it has ended.")
    expect(shown.locator("pre")).to_contain_text("Traceback (most recent call last):")
    expect(shown.locator("pre")).to_contain_text("KeyError: 'No map for ***'")
    assert violations_in_themes(settings) == []


def test_a_server_that_works_lists_its_tools(settings: Page, site: Site, tmp_path: Path) -> None:
    added(settings, site, "-m", "tests.support.servers.tool_program", "counting", str(tmp_path / "runs"))
    shown = tried(settings)
    expect(shown).to_contain_text("The connection works. Models are offered 10 tools:")
    expect(shown.locator("dt")).to_have_count(10)
    assert violations_in_themes(settings) == []


def test_images_and_sound_of_a_result_are_shown_and_a_notice_is_a_quiet_line(talk: Talk) -> None:
    for number, dialect in enumerate(Dialect):
        talk.site.record(talk.id, returned(dialect, number), key=f"r{number}")
    images = talk.page.get_by_role("img", name="Image of the result")
    expect(images).to_have_count(2)
    for image in images.all():
        image.scroll_into_view_if_needed()
        expect(image).to_have_js_property("complete", True)
        expect(image).to_have_js_property("naturalWidth", 1)
    expect(talk.page.locator("audio")).to_have_count(2)
    sound = talk.page.locator("audio").first
    sound.evaluate("each => each.load()")
    expect(sound).to_have_js_property("error", None)
    expect(talk.page.get_by_role("link", name="File (text/csv)")).to_have_count(2)
    quiet = talk.page.locator("article.quiet").filter(has_text="The tool server `maps` can't be used")
    expect(quiet).to_have_count(2)
    expect(talk.messages("agent")).to_have_count(0)
    assert violations_in_themes(talk.page) == []


def returned(dialect: Dialect, number: int) -> list[dict[str, Any]]:
    """Return a call, its result with files, and a notice, as the server's own agents write them."""
    author, name = dialects.author(dialect), f"{dialect}-{number}"
    call: dict[str, Any] = {"name": "look", "arguments": {"at": number}, "tool_call_id": name}
    events: list[Authored] = [
        author.tool_call(**call, event_id=f"{name}-call"),
        author.tool_result(
            **call, content="a map", files=FILES, event_id=f"{name}-result", call_event_id=f"{name}-call"
        ),
        author.notice(text=NOTICE, event_id=f"{name}-notice"),
    ]
    return [json.loads(event.payload) for event in events]
