"""A webhook endpoint on loopback: it records what it is sent, and has the faults that one can have."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple

from tests.support.servers.loopback_server import LoopbackServer, Request


class Call(NamedTuple):
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    text: str
    """The body as it was sent."""
    status: int
    """What is answered; 0 for nothing."""

    @property
    def body(self) -> Any:
        return json.loads(self.text)


class WebhookServer(LoopbackServer):
    """One endpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.status = 200
        self.redirects_to: str | None = None
        self._silent = threading.Event()
        self._go = threading.Event()
        self._go.set()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._go.set()
        super().__exit__(exc_type, exc_value, traceback)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def next_status(self) -> int:
        return 0 if self._silent.is_set() else self.status

    @property
    def taken(self) -> list[Call]:
        """Return the calls that it said yes to."""
        return [call for call in self.calls if call.status == 200]

    @property
    def batches(self) -> list[list[Any]]:
        """Return the batches of events that it took."""
        return [call.body for call in self.taken if call.path.startswith("/events/")]

    @property
    def infos(self) -> list[Any]:
        """Return the conversations' information that it took."""
        return [call.body for call in self.taken if call.path == "/conversations"]

    def never_answer(self) -> None:
        """Take requests and stay silent."""
        self._silent.set()

    def hold(self) -> None:
        """Keep every request waiting for its answer until `let_go`."""
        self._go.clear()

    def let_go(self) -> None:
        """Answer what is held, and answer again from now on."""
        self._silent.clear()
        self._go.set()

    def take(self, request: Request) -> None:
        assert request.command == "POST"
        status = self.next_status
        self.calls.append(Call(request.path, request.header_values(), request.read().decode(), status))
        self._go.wait()
        if status:
            request.reply(status, headers={"Location": self.redirects_to} if self.redirects_to else {})
        else:
            self.stopped.wait()
