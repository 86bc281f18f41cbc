"""The ASGI application of the direct path: small appends and polled reads, answered before their views.

Of the middleware, it leaves out what such a request has no use for:

- the lines about refused requests, and the answers to a failing database: only successes come from here,
  and what is behind answers for a failure
- sessions, logins, messages, the CSRF check and the admin's policy: a request with a cookie goes to its view
- CORS: a request with an `Origin` goes to its view; who may ask at all was checked before (`OwnOriginOnly`)
- CommonMiddleware's check of the address, which matches a route here, and SecurityMiddleware's redirect to
  HTTPS, which the proxy makes; and the files, whose addresses match none
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

from csp.utils import build_policy
from django.conf import settings

from conversations.exceptions import QuotaExceeded
from conversations.storage import quotas
from convserver.api.bounded_bodies import replayed
from convserver.api.direct import appends, reads
from convserver.api.direct.calls import NotDirect
from convserver.api.direct.outcomes import COUNTED
from convserver.api.direct.recent_failure import recent_failure
from convserver.api.direct.requests import DirectRequest, DirectRoute
from convserver.api.errors import NO_CACHE, UNAVAILABLE
from convserver.serving.measuring import name_route

Headers = list[tuple[bytes, bytes]]

_ROUTES: dict[str, Sequence[DirectRoute]] = {
    "GET": reads.ROUTES,
    "HEAD": reads.ROUTES,
    "POST": appends.ROUTES,
}


class DirectDoor:
    """An application that answers what is like most itself, and leaves all else to the views."""

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application
        # As the middleware, which reads its settings once, too.
        self._headers = {
            (route.name, is_secure): headers_of_success(route, is_secure=is_secure)
            for route in (*appends.ROUTES, *reads.ROUTES)
            for is_secure in (False, True)
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        found = _found(scope)
        if found is None:
            await self.application(scope, receive, send)
            return
        route, request = found
        name_route(scope, route.name)
        # A body may come slowly, and who sends it is looked up after its end, as the views do.
        body = await _body_of(receive)
        if body is None:
            return
        try:
            answer, headers = await self._answer(route, request._replace(body=body))
        except NotDirect:
            answer = None
        if answer is None:  # outside of the clause: what the view raises has nothing to do with the exception
            await self.application(request.scope, replayed(body, receive), send)
            return
        # What fails from here on is the way to the client: the view must not answer a second time.
        await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, route: DirectRoute, request: DirectRequest) -> tuple[bytes, Headers]:
        """Return the body and the headers of a success. Raise NotDirect."""
        try:
            client = await route.client_of(request)
            quotas.admit_request(client.caller.user_pk)
            request.scope[COUNTED] = True
            answer = await route.answer(request, client)
        except QuotaExceeded as error:  # nothing was counted: the view asks once more, and words it
            raise NotDirect from error
        except UNAVAILABLE as error:
            recent_failure().note_in(request.scope, error)
            raise NotDirect from error
        headers = [
            *self._headers[route.name, request.is_secure],
            # Without a key, the view has looked for a login's cookie.
            (b"vary", b"origin" if client.has_key else b"Cookie, origin"),
            (b"content-length", str(len(answer.body)).encode()),
        ]
        if answer.etag is not None:
            headers.append((b"etag", answer.etag.encode()))
        return answer.body, headers


def headers_of_success(route: DirectRoute, *, is_secure: bool) -> Headers:
    """Return what the view and the middleware say of every success of this route."""
    headers = {
        "Content-Type": "application/json",
        "Allow": route.allow,
        "Content-Security-Policy": build_policy(),
        "X-Frame-Options": settings.X_FRAME_OPTIONS,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": settings.SECURE_REFERRER_POLICY,
        "Cross-Origin-Opener-Policy": settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
    }
    if is_secure and settings.SECURE_HSTS_SECONDS:
        headers["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
    if route.forbids_caching:
        headers |= NO_CACHE
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def _found(scope: Any) -> tuple[DirectRoute, DirectRequest] | None:
    """Return the route of a request that is like most, and the request; None if its view has to answer."""
    for route in _ROUTES.get(scope["method"], ()):
        if address := route.address.fullmatch(scope["path"]):
            request = DirectRequest.of(scope, address)
            return (route, request) if request.is_of_a_program() and route.takes(request) else None
    return None


async def _body_of(receive: Any) -> bytes | None:
    """Return the body; None if the client has left."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)
