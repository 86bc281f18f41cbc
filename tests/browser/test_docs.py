"""The page of the API document, in the theme of the browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Browse
from tests.conftest import once

pytestmark = once

LIGHT, DARK = "rgba(0, 0, 0, 0)", "rgb(28, 32, 34)"


@pytest.mark.parametrize(
    ("system", "chosen", "background"),
    [("dark", "", DARK), ("dark", "light", LIGHT), ("light", "dark", DARK)],
)
@pytest.mark.sampled(1)
def test_the_document_is_shown_in_the_theme_of_the_pages(
    browse: Browse, system: str, chosen: str, background: str
) -> None:
    page = browse(color_scheme=system).new_page()
    page.goto("/")
    page.evaluate("(theme) => { document.cookie = `theme=${theme}; path=/` }", chosen)
    page.goto("/api/docs/")
    expect(page.locator("html")).to_have_css("background-color", background)


@pytest.mark.slow
def test_the_document_follows_the_system(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/api/docs/")
    expect(page.locator("html")).to_have_css("background-color", LIGHT)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_css("background-color", DARK)
