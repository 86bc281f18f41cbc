"""A temporary conversation in a browser: begun from the first page, purged after it was left, or kept."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.conftest import once
from tests.support.people.clients import HTTP
from tests.support.wires.network import wait_until

pytestmark = once


def begin(page: Page, site: Site) -> Talk:
    """Begin a temporary conversation from the first page."""
    page.goto(f"{site.url}/")
    page.get_by_label("Temporary").check()
    page.locator("#text").fill("Forget this")
    page.locator("#text").press("Enter")
    page.wait_for_url(re.compile("/c/"))
    talk = Talk(page, site, page.url.rpartition("/")[2])
    talk.answered("You said: Forget this")
    return talk


def state(site: Site, talk: Talk) -> dict[str, Any]:
    found: dict[str, Any] = (
        HTTP.get(f"{site.url}/api/native/conversations/{talk.id}").raise_for_status().json()
    )
    return found


def test_a_temporary_conversation_is_in_no_list_until_it_is_kept(page: Page, site: Site) -> None:
    talk = begin(page, site)
    expect(page.locator("#temporary")).to_contain_text("deleted for good soon after you leave it")
    expect(page.locator(f'#list a[href$="{talk.id}"]')).to_have_count(0)
    page.get_by_role("button", name="Keep it").click()
    expect(page.locator(f'#list a[href$="{talk.id}"]')).to_have_count(1)
    expect(page.locator("#temporary")).to_have_count(0)
    assert state(site, talk)["expires_at"] is None


def test_leaving_the_page_shortens_its_time_and_coming_back_gives_it_again(page: Page, site: Site) -> None:
    talk = begin(page, site)
    page.reload()
    talk.is_connected()
    first = state(site, talk)["expires_at"]
    page.goto(f"{site.url}/settings")
    wait_until(lambda: state(site, talk)["expires_at"] < first)
    page.go_back()
    wait_until(lambda: state(site, talk)["expires_at"] == first)


def test_one_is_begun_and_deleted_without_scripts(browser: Browser, site: Site) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}/")
    page.get_by_label("Temporary").check()
    page.locator("#text").fill("Forget this")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#temporary")).to_contain_text("nothing tells the server that you leave")
    talk = Talk(page, site, page.url.partition("/c/")[2].partition("#")[0])
    page.get_by_role("button", name="Delete now").click()
    page.wait_for_url(f"{site.url}/")
    assert not site.has(talk.id)
    context.close()
