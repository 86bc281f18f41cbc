"""What caches may keep: nothing of an answer that says nothing of them, as only files do."""

from __future__ import annotations

from typing import Any

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

NO_STORE = (b"cache-control", b"no-store")
# What says who asks: a cache that keeps an answer all the same must not give it to others.
VARY = ("Authorization", "Cookie", "X-Session-API-Key")

Headers = list[tuple[bytes, bytes]]


class KeptByNobody:
    """Adds `no-store` to each HTTP answer that says nothing of caches, and `Vary` to what is not kept."""

    def __init__(self, application: ASGI3Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:

        async def send_marked(event: Any) -> None:
            if event["type"] == "http.response.start":
                event = {**event, "headers": _marked(list(event["headers"]))}
            await send(event)

        await self.application(scope, receive, send_marked if scope["type"] == "http" else send)


def _marked(headers: Headers) -> Headers:
    kept = [value for name, value in headers if name.lower() == b"cache-control"]
    if not kept:
        headers = [*headers, NO_STORE]
    elif not any(b"no-store" in value for value in kept):
        return headers  # a file, as a rule, the same for all clients: `Vary` would only multiply it
    others = [value.decode("latin-1") for name, value in headers if name.lower() == b"vary"]
    named = {name.strip().lower() for value in others for name in value.split(",")}
    vary = ", ".join([*others, *(name for name in VARY if name.lower() not in named)])
    return [*(each for each in headers if each[0].lower() != b"vary"), (b"vary", vary.encode("latin-1"))]
