"""The pages as an app of the device: without a server, with what waits to be sent, and with notifications."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.browser.watch import Watch
from tests.conftest import once
from tests.support.people.clients import WAIT_S
from tests.support.wires.network import wait_until

pytestmark = once

# Without a screen, browsers show no notifications: what they would show is written down.
_WRITE_DOWN = """
window.shown = [];
Notification.requestPermission = async () => "granted";
Object.defineProperty(Notification, "permission", { get: () => "granted" });
if (globalThis.ServiceWorkerRegistration)
  ServiceWorkerRegistration.prototype.showNotification = async (title, { body, data }) =>
    shown.push([title, body, data]);
"""


@pytest.fixture
def installing(new_context: Callable[..., BrowserContext], site: Site, watch: Watch) -> BrowserContext:
    """A browser of its own, in which the pages may stand between themselves and the network."""
    context = new_context(reduced_motion="reduce", service_workers="allow")
    context.set_default_timeout(WAIT_S * 1000)
    watch.follow(context)
    return context


def installed(page: Page, address: str) -> None:
    page.goto(address)
    wait_until(
        lambda: page.evaluate("navigator.serviceWorker.ready.then((it) => it.active.state)") == "activated"
    )


def test_without_a_server_a_page_keeps_messages_which_are_sent_when_it_is_back(
    site: Site, installing: BrowserContext
) -> None:
    page = installing.new_page()
    talk = Talk(page, site, site.create(title="A talk"))
    installed(page, f"{site.url}/c/{talk.id}")
    site.kill()
    page.goto(f"{site.url}/c/{talk.id}")
    expect(page.get_by_role("heading", name="The server can't be reached")).to_be_visible()
    page.get_by_label("Message").fill("Written without a server")
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("listitem")).to_have_text("Written without a server")
    page.goto(f"{site.url}/")
    expect(page.get_by_text("1 message for another conversation waits as well.")).to_be_visible()
    page.goto(f"{site.url}/c/{talk.id}")
    expect(page.get_by_role("listitem")).to_have_text("Written without a server")
    site.open()
    expect(talk.messages("agent")).to_contain_text("You said: Written without a server")
    assert site.said(talk.id) == ["Written without a server"]


def test_who_looks_away_is_notified_when_an_agent_asks_or_has_ended(
    site: Site, installing: BrowserContext
) -> None:
    installing.add_init_script(_WRITE_DOWN)
    page = installing.new_page()
    installed(page, f"{site.url}/settings")
    page.get_by_label("Notify me on this device").check()
    talk = Talk(installing.new_page(), site, site.create(title="A talk"))
    talk.open()
    # Headless windows are all looked at: this one says that it is not.
    talk.page.evaluate("Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' })")
    for text, words in (("Hello", "Done"), ("/approve", "Needs your approval")):
        site.send(talk.id, {"type": "message", "id": f"said {text}", "text": text})
        wait_until(partial(is_shown, talk.page, words))
    address = f"{site.url}/c/{talk.id}"
    said = [["A talk", "Done", address], ["A talk", "Needs your approval", address]]
    assert talk.page.evaluate("shown") == said
    page.get_by_label("Notify me on this device").uncheck()
    assert page.evaluate("localStorage.notify") is None


def is_shown(page: Page, words: str) -> bool:
    return words in [said for _, said, _ in page.evaluate("shown")]


def test_another_app_shares_a_text_with_a_new_conversation(page: Page, site: Site) -> None:
    manifest: dict[str, Any] = page.request.get("/ui/manifest.webmanifest").json()
    assert manifest["share_target"]["action"] == "/new"
    page.goto("/new?title=A+page&text=%3Cb%3ELook%3C%2Fb%3E&url=https%3A%2F%2Fexample.org")
    expect(page.get_by_label("Message", exact=True)).to_have_value("A page\n<b>Look</b>\nhttps://example.org")
