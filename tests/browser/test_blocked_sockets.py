"""Where something on the way lets no WebSocket through, pages go on over HTTP, say so, and come back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.browser.site import Site
from tests.browser.talk import Held, Talk
from tests.conftest import once

pytestmark = once

OVER_HTTP = "Live updates come over HTTP; WebSockets are blocked"
LONG = "slow: " + " ".join(f"word{number}" for number in range(60))
_WATCHED = """() => {
  const line = document.querySelector("#connection");
  window.lines = [];
  const changes = new MutationObserver(() => lines.push(line.innerText));
  changes.observe(line, { subtree: true, childList: true, characterData: true });
}"""
_LOOKED_AT = """(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Proxy:
    """What is between a page and the server, and lets no WebSocket through until it is open."""

    def __init__(self, page: Page) -> None:
        self.is_open = False
        self.requests: list[tuple[str, str]] = []
        page.on("request", lambda request: self.requests.append((request.method, request.url)))
        page.route_web_socket(re.compile("/ws/"), self._answer)

    def _answer(self, socket: WebSocketRoute) -> None:
        if self.is_open:
            socket.connect_to_server()
        else:
            socket.close(code=1001, reason="")

    def sent(self, method: str, address: str) -> int:
        """Return how many requests of this method went to an address that ends so."""
        return len([url for used, url in self.requests if used == method and url.endswith(address)])


@pytest.fixture
def blocked(page: Page, site: Site) -> tuple[Talk, Proxy]:
    """A conversation in a tab behind such a proxy."""
    proxy = Proxy(page)
    talk = Talk(page, site, site.create(title="Behind a proxy"))
    page.goto(f"{site.url}/c/{talk.id}")
    expect(talk.line).to_have_text(OVER_HTTP)
    return talk, proxy


def test_a_conversation_goes_on_over_http(blocked: tuple[Talk, Proxy]) -> None:
    talk, proxy = blocked
    talk.say("Hello through a proxy")
    talk.answered("You said")
    expect(talk.delivery("Hello through a proxy")).to_contain_text("Answered")
    talk.say("/approve")
    talk.asked()
    talk.approval.get_by_role("button", name="Approve").click()
    talk.answered("Done.")
    talk.say(LONG)
    expect(talk.streaming).to_contain_text("word2")
    talk.page.get_by_role("button", name="Stop", exact=True).click()
    expect(talk.page.locator("#agent-state")).to_contain_text("Stopped")
    assert talk.site.said(talk.id) == ["Hello through a proxy", "/approve", LONG]
    assert [proxy.sent("POST", f"/{name}") for name in ("events", "confirm", "stop")] == [3, 1, 1]
    expect(talk.line).to_have_text(OVER_HTTP)


def test_what_others_do_is_shown_live(blocked: tuple[Talk, Proxy]) -> None:
    talk, _ = blocked
    talk.site.send(talk.id, {"type": "message", "id": "elsewhere", "text": "From another device"})
    expect(talk.messages("user")).to_have_text(re.compile("From another device"))
    talk.answered("You said")
    talk.site.rename(talk.id, "Renamed elsewhere")
    expect(talk.page.locator("h1")).to_contain_text("Renamed elsewhere")
    expect(talk.page.locator(f"#row-{talk.id} .title")).to_have_text("Renamed elsewhere")
    other = talk.site.create(title="New elsewhere")
    expect(talk.page.locator(f"#row-{other}")).to_be_visible()


def test_a_page_comes_back_to_its_socket(blocked: tuple[Talk, Proxy]) -> None:
    talk, proxy = blocked
    proxy.is_open = True
    talk.hurry()
    talk.is_connected()
    proxy.requests.clear()
    talk.say("Hello again")
    talk.answered("You said")
    assert proxy.sent("POST", "/events") == 0
    assert talk.site.said(talk.id) == ["Hello again"]


@pytest.mark.usefixtures("browse_anew")  # whose clock stays as it is set
def test_a_stream_that_is_kept_back_is_replaced_by_polls(page: Page, site: Site) -> None:
    page.clock.install()
    Proxy(page)
    stream = Held(page, re.compile("/stream[?].*payload=false$"))
    talk = Talk(page, site, site.create())
    page.goto(f"{site.url}/c/{talk.id}")
    stream.first()
    page.clock.fast_forward(9_000)
    expect(talk.line).to_have_text(OVER_HTTP)
    talk.say("Hello by polls")
    talk.answered("You said")
    site.send(talk.id, {"type": "message", "id": "elsewhere", "text": "/approve"})
    talk.asked()
    talk.approval.get_by_role("button", name="Reject").click()
    talk.answered("OK, I won't")
    assert site.said(talk.id) == ["Hello by polls", "/approve"]


def test_a_hidden_tab_holds_no_connection(blocked: tuple[Talk, Proxy]) -> None:
    talk, _ = blocked
    with talk.page.expect_request(re.compile(f"{talk.id}/stream.*follow=false")):
        talk.page.evaluate(_LOOKED_AT, "hidden")
    with talk.page.expect_request(re.compile(f"{talk.id}/stream.*payload=false$")):
        talk.page.evaluate(_LOOKED_AT, "visible")
    talk.say("Hello after a pause")
    talk.answered("You said")


@pytest.mark.no_second_try
def test_a_server_that_ends_and_comes_back_is_found_over_http(blocked: tuple[Talk, Proxy]) -> None:
    talk, _ = blocked
    talk.site.kill()
    expect(talk.line).to_contain_text("Reconnecting")
    talk.say("Written meanwhile")
    expect(talk.unsent).to_contain_text("Waiting to be sent")
    talk.site.open()
    expect(talk.line).to_have_text(OVER_HTTP)
    talk.answered("You said")
    assert talk.site.said(talk.id) == ["Written meanwhile"]


def test_a_server_that_is_only_away_is_not_called_blocked(talk: Talk) -> None:
    talk.page.evaluate(_WATCHED)
    talk.site.kill()
    expect(talk.page.locator("#connection")).to_contain_text("Retrying in 4")  # HTTP was tried as well
    talk.site.open()
    talk.hurry()
    talk.is_connected()
    lines: list[str] = talk.page.evaluate("lines")
    assert [each for each in lines if "blocked" in each] == []


def test_a_conversation_that_is_deleted_is_said_to_be(blocked: tuple[Talk, Proxy]) -> None:
    talk, _ = blocked
    talk.site.delete(talk.id)
    expect(talk.page.locator("#agent-state")).to_have_text("Deleted")
