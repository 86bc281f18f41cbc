"""Answers that go on for as long as something happens, sent from the event loop while no thread waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from django.http import HttpResponse, JsonResponse, StreamingHttpResponse

from conversations.exceptions import QuotaExceeded
from convserver.api.errors import NATIVE_STATUS, retry_headers, status_of

Write = Callable[[bytes], Awaitable[None]]

HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would keep what is written until it has a page of it
}


class LiveResponse(StreamingHttpResponse):
    """Server-sent events."""

    def __init__(
        self, serve: Callable[[Write], Awaitable[None]], permit: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`serve` writes until it is over, inside the block of `permit`, which may raise QuotaExceeded."""
        # No content: the handler calls `send`, which writes from the event loop.
        super().__init__((), content_type="text/event-stream; charset=utf-8", headers=HEADERS)
        self._serve = serve
        self._permit = permit

    async def send(self, send: Any) -> HttpResponse | None:
        """Send it all; if there is no permit, send nothing and return the refusal."""
        with ExitStack() as held:
            try:
                held.enter_context(self._permit())
            except QuotaExceeded as error:
                return refusal(error)
            cookies = [("Set-Cookie", each.output(header="").strip()) for each in self.cookies.values()]
            headers = [
                (name.encode("ascii"), value.encode("latin-1")) for name, value in (*self.items(), *cookies)
            ]
            await send({"type": "http.response.start", "status": self.status_code, "headers": headers})

            async def write(body: bytes) -> None:
                await send({"type": "http.response.body", "body": body, "more_body": True})

            await self._serve(write)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        return None


def refusal(error: QuotaExceeded) -> HttpResponse:
    """Return the native door's answer to a client with too many."""
    return JsonResponse(
        {"code": error.code, "detail": str(error)},
        status=status_of(error, NATIVE_STATUS),
        headers=retry_headers(error),
    )
