"""Pages of a server that serves a frontend of somebody else's at `/`: all of theirs lie below `/ui/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.conftest import once

pytestmark = once


@pytest.fixture
def beside(process: Site, tmp_path: Path) -> Iterator[None]:
    """Serve a built frontend, as long as the test runs."""
    (tmp_path / "index.html").write_text("<!doctype html><title>Theirs</title><h1>Another frontend</h1>")
    process.kill()
    process.open(CONVSERVER_FRONTEND_DIR=str(tmp_path))
    yield
    process.kill()


@pytest.mark.slow
def test_a_conversation_is_begun_found_and_left_below_ui(beside: None, page: Page, site: Site) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", name="Another frontend")).to_be_visible()
    page.goto("/ui/")
    page.get_by_label("Message", exact=True).fill("Hello from below")
    page.keyboard.press("Enter")
    expect(page.locator("#events article.message.agent")).to_be_visible()
    page.wait_for_url(re.compile(r"/ui/c/[0-9a-f]{32}$"))
    row = page.locator(f"#row-{page.url.rpartition('/')[2]}")
    expect(row.locator("a.open")).to_have_attribute("aria-current", "page")
    keys = page.keyboard
    keys.press("Escape")
    for typed, heading in (("settings", "Settings"), ("all conversations", None)):
        keys.press("Control+k")
        keys.type(typed)
        expect(page.locator("#palette").get_by_role("option").first).to_contain_text(typed, ignore_case=True)
        keys.press("Enter")
        if heading:
            expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
            page.wait_for_load_state()
    expect(page).to_have_url("/ui/")
    page.goto("/ui/search?q=below")
    page.locator("#hits a").first.click()
    page.wait_for_url(re.compile(r"/ui/c/[0-9a-f]{32}"))
    expect(page.locator("#events article.marked")).to_contain_text("below")
    row.locator(".actions > summary").click()
    row.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
