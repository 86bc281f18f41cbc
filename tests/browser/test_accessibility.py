"""Pages for everybody: axe finds nothing serious, in light and dark, wide and narrow."""

from __future__ import annotations

import json

import pytest
from django.template.loader import render_to_string
from django.test import RequestFactory
from playwright.sync_api import Page, expect

from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.browser.violations import violations_in_themes
from tests.conftest import once
from tests.support.wires import event_places

pytestmark = once


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/new",
        "/settings",
        "/settings/import",
        "/deleted",
        "/search?q=answer",
        "/c/never-there",
        "/nowhere",
    ],
)
@pytest.mark.sampled(3)
def test_a_page_is_accessible(page: Page, path: str) -> None:
    page.goto(path)
    page.evaluate("() => { for (const each of document.querySelectorAll('details')) each.open = true }")
    assert violations_in_themes(page) == []


def test_every_kind_of_event_is_accessible(page: Page, site: Site) -> None:
    conversation_id = site.create(title="All kinds")
    payloads = [
        json.loads(each["payload"]) | {"id": f"{place}-{number}"}
        for place, made in (
            ("block", event_places.blocks("A *text* with `code`")),
            ("line", event_places.lines("a name")),
        )
        for number, each in enumerate(made.values())
    ]
    site.record(conversation_id, payloads)
    talk = Talk(page, site, conversation_id)
    for around in range(20, len(payloads), 40):
        talk.open(f"?around={around}")
        page.evaluate("() => { for (const each of document.querySelectorAll('details')) each.open = true }")
        assert violations_in_themes(page) == []


def test_a_conversation_is_accessible_while_the_agent_asks(page: Page, site: Site) -> None:
    talk = Talk(page, site, site.create(title="Asking")).open()
    talk.say("/approve")
    expect(talk.approval).to_be_visible()
    assert violations_in_themes(page) == []


@pytest.mark.slow
def test_a_lost_connection_is_accessible(page: Page, site: Site) -> None:
    talk = Talk(page, site, site.create(title="Lost")).open()
    page.context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    talk.say("kept")
    expect(talk.line).to_contain_text("1 waiting to be sent")
    assert violations_in_themes(page) == []


def test_the_list_is_accessible_with_all_that_can_be_done_there(page: Page, site: Site) -> None:
    conversation_id = site.create(title="In the list")
    site.record(conversation_id, [message("Something to read", source="agent")])
    page.goto("/")
    page.locator(f"#row-{conversation_id} .actions > summary").click()
    assert violations_in_themes(page) == []


@pytest.mark.parametrize("path", ["/ui/login", "/c/a%20b/export.txt"])
def test_a_page_without_the_list_is_accessible(page: Page, path: str) -> None:
    page.goto(path)
    assert violations_in_themes(page) == []


@pytest.mark.parametrize("name", ["400", "401", "403", "403_csrf", "500"])
@pytest.mark.sampled(2)
def test_a_page_that_says_what_went_wrong_is_accessible(page: Page, name: str) -> None:
    html = render_to_string(f"{name}.html", request=RequestFactory().get("/wrong"))
    page.route("**/wrong", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto("/wrong")
    assert page.evaluate("() => document.styleSheets.length") > 0
    assert violations_in_themes(page) == []


def test_the_palette_and_the_help_are_accessible(page: Page, site: Site) -> None:
    site.create(title="Fix the list")
    page.goto("/settings")
    page.keyboard.press("Control+k")
    expect(
        page.locator("#palette").get_by_role("option").filter(has_text="Fix the list").first
    ).to_be_visible()
    assert violations_in_themes(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keyboard shortcuts").click()
    assert violations_in_themes(page) == []


@pytest.mark.slow
def test_settings_fit_the_window(page: Page) -> None:
    for width in (320, 390, 800, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto("/settings")
        page.evaluate("() => { for (const each of document.querySelectorAll('details')) each.open = true }")
        main = "document.getElementById('main')"
        assert page.evaluate(f"{main}.scrollWidth <= {main}.clientWidth"), width
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
