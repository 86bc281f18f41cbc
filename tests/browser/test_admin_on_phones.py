"""The admin on a phone: nothing is wider than the screen, whatever things are called."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

from tests.browser.conftest import Browse
from tests.browser.site import Site
from tests.conftest import once

pytestmark = once

WORD = "Donaudampfschifffahrtsgesellschaftskapitaen" * 2
WIDER_THAN_THE_SCREEN = """() => [...document.querySelectorAll("main *, #main *, #result_list *")]
    .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1)
    .map((each) => `${each.tagName} ${each.textContent.trim().slice(0, 40)}`)"""


PATHS = ["", "conversations/conversation/", "sessions_app/apitoken/", "admin/logentry/", "auth/user/add/"]


@pytest.mark.slow
def test_long_names_stay_within_the_screen(site: Site, browse: Browse) -> None:
    made = site.create(title=WORD, repository=WORD)
    httpx.post(
        f"{site.url}/api/native/tokens", json={"name": f"{uuid4().hex}{WORD}"[:100]}
    ).raise_for_status()
    page = browse(viewport={"width": 390, "height": 844}, has_touch=True).new_page()
    page.goto(f"{site.url}/admin/conversations/conversation/?q={made}")
    page.get_by_role("link", name=WORD).first.click()
    page.get_by_role("link", name="Open events").click()  # which the first page tells of
    for path in PATHS:
        page.goto(f"{site.url}/admin/{path}")
        assert page.evaluate(WIDER_THAN_THE_SCREEN) == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
