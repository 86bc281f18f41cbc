"""A file from another program: chosen, uploaded, imported while one watches, and found by what was said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.site import Site
from tests.browser.violations import violations_in_themes
from tests.conftest import once
from tests.support.data.import_files import SAID, chat, export
from tests.support.people.clients import HTTP

pytestmark = once

IMPORTED_MS = 90_000
"""Fifty conversations take a busy machine longer than a page does."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """ChatGPT's export as its zip file."""
    path = tmp_path / "chatgpt.zip"
    others = [chat(str(number), title=f"Talk {number}", said=[f"Number {number}"]) for number in range(30)]
    path.write_bytes(export(chat("cuckoo", said=[SAID, "In the forest."]), *others))
    return path


@pytest.fixture
def importing(page: Page, site: Site) -> Iterator[Page]:
    """The page, which sends pieces of 400 bytes; what it has imported is forgotten afterwards."""
    page.goto("/settings/import")
    page.locator("#import-form").evaluate("form => form.dataset.piece = 400")
    yield page
    for each in HTTP.get(f"{site.url}/api/native/imports", headers=site.headers).json()["imports"]:
        HTTP.delete(f"{site.url}/api/native/imports/{each['id']}", headers=site.headers)


def test_an_export_is_uploaded_imported_and_found(importing: Page, file: Path) -> None:
    importing.get_by_label("File", exact=True).set_input_files(file)
    importing.get_by_label("Labels").fill("moved")
    importing.get_by_role("button", name="Upload and import").click()
    importing.wait_for_url(re.compile("/settings/import/[0-9a-f]+$"))
    expect(importing.locator(".import-state")).to_contain_text("Finished", timeout=IMPORTED_MS)
    expect(importing.get_by_role("row", name="Conversations in the file")).to_contain_text("31")
    expect(importing.get_by_role("row", name="Records in the file")).to_be_visible()
    expect(importing.get_by_role("button", name="Remove report")).to_be_visible()
    assert violations_in_themes(importing) == []
    importing.locator("#import-run").get_by_role("link", name="Cuckoo clocks").click()
    expect(importing.locator("#events article.message.user")).to_contain_text(SAID)


@pytest.mark.slow
def test_progress_is_shown_in_bytes_while_pieces_are_on_their_way(importing: Page, file: Path) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    importing.route(re.compile(r"/pieces\?offset=(?!0$|400$)"), hold)
    importing.get_by_label("File", exact=True).set_input_files(file)
    importing.get_by_role("button", name="Upload and import").click()
    expect(importing.locator("#upload-words")).to_contain_text(re.compile(r"800 bytes of [\d.]+ (bytes|KB)"))
    expect(importing.get_by_role("progressbar", name="Uploaded")).to_be_visible()
    held[0].continue_()  # it is the last one
    expect(importing.locator(".import-state")).to_contain_text("Finished", timeout=IMPORTED_MS)


def test_an_upload_that_was_cancelled_goes_on_where_it_stopped(importing: Page, file: Path) -> None:
    importing.route(re.compile(r"/pieces\?offset=(?!0$|400$)"), lambda route: None)
    importing.get_by_label("File", exact=True).set_input_files(file)
    importing.get_by_role("button", name="Upload and import").click()
    expect(importing.locator("#upload-words")).to_contain_text("800 bytes of")
    importing.get_by_role("button", name="Cancel", exact=True).click()
    expect(importing.locator("#upload-problem")).to_contain_text("Cancelled.")
    expect(importing.get_by_role("listitem").filter(has_text="Upload not finished")).to_be_visible()
    assert importing.evaluate("document.documentElement.scrollHeight <= innerHeight")  # `main` scrolls alone
    importing.unroute_all()
    sent: list[str] = []
    importing.on("request", lambda request: sent.append(request.url) if "/pieces" in request.url else None)
    importing.get_by_role("button", name="Upload and import").click()
    expect(importing.locator(".import-state")).to_contain_text("Finished", timeout=IMPORTED_MS)
    assert sent[0].endswith("offset=800")


@pytest.mark.slow
def test_a_file_in_no_known_format_is_refused_in_a_sentence(importing: Page, tmp_path: Path) -> None:
    diary = tmp_path / "diary.txt"
    diary.write_text("Dear diary")
    importing.get_by_label("File", exact=True).set_input_files(diary)
    importing.get_by_role("button", name="Upload and import").click()
    expect(importing.get_by_role("alert")).to_contain_text("It is in no format that is known here.")
    expect(importing.locator(".import-state")).to_contain_text("Failed")
