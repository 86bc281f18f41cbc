"""The socket between a page and its server, as tests disturb it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

from tests.support.people.clients import WAIT_S

Judge = Callable[[dict[str, Any]], bool]
"""Says whether a frame is meant."""


def never(frame: dict[str, Any]) -> bool:
    """Mean none."""
    return False


class Line:
    """A socket of which some of what comes is kept, and some of what goes is lost."""

    def __init__(self, page: Page, *, keeps: Judge = never, loses: Judge = never) -> None:
        self.keeps = keeps
        self.loses = loses
        self.kept: list[dict[str, Any]] = []
        self.addresses: list[str] = []
        """Where the page has connected to, the first time and each time after."""
        self._page = page
        page.route_web_socket("**/ws/conversations/**", self._opened)

    def say(self, frame: dict[str, Any]) -> None:
        self._socket.send(json.dumps(frame))

    def let_go(self, count: int | None = None) -> None:
        """Let the page hear the first ones of what was kept, else all."""
        for frame in self.kept[:count]:
            self.say(frame)
        del self.kept[:count]

    def until(self, wanted: Judge) -> int:
        """Wait until such a frame is kept; return how many there are up to it and with it."""
        deadline = time.monotonic() + WAIT_S
        while not any(map(wanted, self.kept)):
            assert time.monotonic() < deadline
            self._page.wait_for_timeout(10)
        return [wanted(frame) for frame in self.kept].index(True) + 1

    def until_opened(self, times: int) -> None:
        """Wait until the page has connected so often."""
        deadline = time.monotonic() + WAIT_S
        while len(self.addresses) < times:
            assert time.monotonic() < deadline
            self._page.wait_for_timeout(10)

    def end(self, code: int, reason: str = "") -> None:
        """Close it, as the server would."""
        self._socket.close(code=code, reason=reason)

    def _opened(self, socket: WebSocketRoute) -> None:
        self._socket = socket
        self.addresses.append(socket.url)
        server = socket.connect_to_server()
        server.on_message(self._heard)
        socket.on_message(lambda message: None if self.loses(json.loads(message)) else server.send(message))

    def _heard(self, message: str | bytes) -> None:
        frame = json.loads(message)
        if self.keeps(frame):
            self.kept.append(frame)
        else:
            self.say(frame)
