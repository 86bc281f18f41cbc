"""What no page may do: fail, break its own policy, ask another origin for anything."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page

OF_THE_NETWORK = ("Failed to load resource", "WebSocket connection to")
"""What a browser says itself when a server is gone, or refuses: tests of that look at the page."""
_REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error("policy:", event.violatedDirective, event.blockedURI, event.sample));
"""


class Watch:
    """Collects the faults of every page of the contexts that it follows."""

    def __init__(self, origin: str) -> None:
        self.faults: list[str] = []
        self._host = urlsplit(origin).netloc

    def follow(self, context: BrowserContext) -> None:
        """Note what goes wrong in any page of this context from now on."""
        context.add_init_script(_REPORT_VIOLATIONS)
        context.on("request", lambda request: self._asked(request.url))
        context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        context.on("console", self._said)
        context.on("dialog", self._asked_back)
        context.on("page", self._opened)

    def _opened(self, page: Page) -> None:
        page.on("websocket", lambda socket: self._asked(socket.url))

    def _asked_back(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.accept()

    def _asked(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != self._host:
            self.faults.append(f"a request elsewhere: {url[:200]}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(OF_THE_NETWORK):
            self.faults.append(f"console: {message.text[:500]}")
