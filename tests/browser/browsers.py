"""Browsers that one test after the other takes: their cookies and storage go, what they have fetched stays.

A browser that has seen nothing fetches some fifty scripts and styles and compiles them, in a process that
is started for the page: twice the work of all else that most tests do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import BrowserContext, Page

from tests.support.people.clients import WAIT_S

SPARE_MAX = 3
"""So many browsers that nobody uses are kept; each has a process."""
EMPTY = "/alive"
"""An address without scripts, whatever the server is set to."""


class LentBrowser:
    """A browser, and a page of it that stays open: all others open from that one, in its process."""

    def __init__(self, context: BrowserContext, origin: str, options: dict[str, Any]) -> None:
        self.context = context
        self.options = options
        self._origin = origin
        self._first = context.new_page()
        self._first.goto(origin + EMPTY)
        self._devtools = context.new_cdp_session(self._first)
        context.new_page = self._new_page  # type: ignore[method-assign]

    def clean(self) -> None:
        """Close the pages of a test and remove what they have left."""
        for page in self.context.pages:
            if page is not self._first:
                page.close()
        self.context.unroute_all()
        self.context.set_offline(False)
        self._devtools.send("Storage.clearDataForOrigin", {"origin": self._origin, "storageTypes": "all"})
        self.context.clear_cookies()

    def _new_page(self) -> Page:
        with self._first.expect_popup() as opened:
            self._first.evaluate("() => void open('about:blank')")
        return opened.value


class Browsers:
    """The browsers of all tests, by the options that they were made with."""

    def __init__(self, make: Callable[..., BrowserContext], origin: str) -> None:
        self._make = make
        self._origin = origin
        self._spare: list[LentBrowser] = []
        """The one that was used last is the last."""

    def lend(self, **options: Any) -> LentBrowser:
        """Return a browser that has no cookies and stores nothing."""
        for each in self._spare:
            if each.options == options:
                self._spare.remove(each)
                return each
        context = self._make(**options)
        context.set_default_timeout(WAIT_S * 1000)
        return LentBrowser(context, self._origin, options)

    def take_back(self, lent: LentBrowser) -> None:
        """Clean a browser for the next test."""
        lent.clean()
        self._spare.append(lent)
        while len(self._spare) > SPARE_MAX:
            self._spare.pop(0).context.close()
