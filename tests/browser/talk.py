"""A page that shows one conversation, as tests drive it."""

from __future__ import annotations

import re
import time
from typing import Any

from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.site import Site
from tests.support.people.clients import WAIT_S


class Talk:
    """One conversation in one tab."""

    def __init__(self, page: Page, site: Site, conversation_id: str) -> None:
        self.page = page
        self.site = site
        self.id = conversation_id
        self.box = page.get_by_label("Message", exact=True)
        self.line = page.locator("#connection .words")
        self.articles = page.locator("#events article")
        self.unsent = page.locator("#message-queue article:visible")
        self.streaming = page.locator("#answers article")
        self.scroller = page.locator("#log")
        self.to_end = page.locator("#to-end")
        self.waiting = page.locator("#events article.tool_call:has(> header .state.waiting:visible)")
        self.approval = page.get_by_role("group", name="The agent asks for your approval")

    def open(self, place: str = "") -> Talk:
        """Show the conversation, connected; `place` is what follows its address."""
        self.page.goto(f"{self.site.url}/c/{self.id}{place}")
        self.is_connected()
        return self

    def is_connected(self, *, within_s: float = WAIT_S) -> None:
        """Wait until the line says so."""
        expect(self.line).to_have_text("Connected", timeout=within_s * 1000)

    def hurry(self) -> None:
        """Let the browser say that the network is back, so that nobody waits for the next try."""
        self.page.evaluate("dispatchEvent(new Event('online'))")

    def say(self, text: str) -> None:
        """Type a message and send it with Enter."""
        self.box.fill(text)
        self.box.press("Enter")

    def messages(self, side: str) -> Locator:
        """Return the stored messages of one side, `user` or `agent`."""
        return self.page.locator(f"#events article.message.{side}")

    def asked(self, *, is_read: bool = True) -> None:
        """Wait until the agent asks for an approval; it can be given, unless there is more to read before."""
        expect(self.waiting).to_have_count(1)
        expect(self.approval).to_be_visible()
        if is_read:
            expect(self.approval.get_by_role("button", name="Approve")).to_be_enabled()

    def answered(self, text: str) -> None:
        """Wait until the agent's stored answer with this text is shown, and nothing is on its way."""
        expect(self.messages("agent").filter(has_text=text)).to_have_count(1)
        expect(self.unsent).to_have_count(0)
        expect(self.streaming).to_have_count(0)

    def delivery(self, text: str) -> Locator:
        """Return the line that says how far a message has come."""
        return self.page.locator("article.message.user:visible").filter(has_text=text).locator(".delivery")

    def seqs(self) -> list[int]:
        """Return the numbers of the articles that are in the page, in order."""
        found: list[int] = self.articles.evaluate_all("all => all.map((each) => Number(each.dataset.seq))")
        return found

    def offset(self, selector: str) -> float:
        """Return how far below the top of the log an element begins, in pixels."""
        found: Any = self.page.evaluate(
            """(selector) => document.querySelector(selector).getBoundingClientRect().top
                - document.querySelector("#log").getBoundingClientRect().top""",
            selector,
        )
        return float(found)

    def scroll_to(self, edge: str) -> None:
        """Go to the `top` or the `end` of what is in the page."""
        place = "0" if edge == "top" else "log.scrollHeight"
        self.scroller.evaluate(f"(log) => {{ log.scrollTop = {place} }}")


class Held:
    """What a page asks for at some addresses, which waits until a test lets it go."""

    def __init__(self, page: Page, addresses: str | re.Pattern[str], *, times: int | None = None) -> None:
        self._page = page
        self._routes: list[Route] = []
        page.route(addresses, lambda route: self._routes.append(route), times=times)

    def first(self) -> Route:
        """Return the first request, waiting for it: what the page does may be ahead of what it asks for."""
        deadline = time.monotonic() + WAIT_S
        while not self._routes:
            assert time.monotonic() < deadline, "Nothing was asked for."
            self._page.wait_for_timeout(10)  # meanwhile Playwright hands over what is asked for
        return self._routes[0]
