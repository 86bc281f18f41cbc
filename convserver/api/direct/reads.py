"""The ASGI application that answers the reads that polls make, before the views.

A read that is like most, by a known client, is answered in one switch to a thread, by two SQL statements at
most. The views keep the definition: their own functions make what is shown, their answers have the headers
that are learned, and they answer whatever is not like most, every refusal included.

Of the middleware, this leaves out what such a read has no use for:

- the lines about refused requests, and the answers to a failing database: only successes come from here,
  and what is behind answers for a failure
- sessions, logins, messages, the CSRF check and the admin's policy: a request with a cookie goes to its view
- CORS: a request with an `Origin` goes to its view; who may ask at all was checked before (`OwnOriginOnly`)
- the headers of SecurityMiddleware, XFrameOptionsMiddleware and CommonMiddleware, which are learned, and its
  check of the address, which matches a route here; and the files, whose addresses match none
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from conversations import access
from conversations.exceptions import QuotaExceeded
from conversations.payloads.limits import limits_of
from conversations.storage import quotas
from convserver.api.bounded_bodies import replayed
from convserver.api.direct.outcomes import COUNTED
from convserver.api.direct.reading import Answer, Read, ReadDirectly
from convserver.api.direct.recent_failure import recent_failure
from convserver.api.direct.requests import (
    ID,
    Found,
    LearnedHeaders,
    answer,
    body_of,
    has_built_in_parts,
    is_of_a_program,
    is_secure,
    who_asks,
)
from convserver.api.errors import UNAVAILABLE
from convserver.api.native import reads as native
from convserver.api.v0 import reads as v0
from convserver.api.v1.agent import reads as agent
from convserver.api.v1.app import reads as app
from convserver.serving import admission
from convserver.serving.measuring import name_route
from sessions_app import astore
from sessions_app.identity.authentication import headers_of


class Route(NamedTuple):
    """An address to read at."""

    name: str
    """The route's name, by which its view is found."""
    address: re.Pattern[str]
    read: ReadDirectly
    takes_conversation_keys: bool = False


_NATIVE, _V0, _APP, _AGENT = (
    "/api/native/conversations",
    "/api/conversations",
    "/api/v1/app-conversations",
    "/agent/api/conversations",
)
ROUTES = (
    Route("native-conversation-detail", re.compile(f"{_NATIVE}/{ID}"), native.conversation),
    Route("native-conversation-list", re.compile(_NATIVE), native.first_page),
    Route("v0-conversation", re.compile(f"{_V0}/{ID}"), v0.conversation),
    Route("v0-conversations", re.compile(_V0), v0.first_page),
    Route("app-conversations", re.compile(_APP), app.conversations),
    Route("app-search", re.compile(f"{_APP}/search"), app.first_page),
    Route("app-event-search", re.compile("/api/v1/events/search"), app.events),
    Route("agent-conversations-search", re.compile(f"{_AGENT}/search"), agent.first_page, True),
    Route("agent-conversation", re.compile(f"{_AGENT}/{ID}"), agent.conversation, True),
)
"""The first that fits counts."""


class DirectReads:
    """An application that answers reads itself, if they are like most; what is not goes to the views.

    Its answers have the headers that the view's own had, so the first request of each sort goes to the view.
    """

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application
        self._learned = LearnedHeaders()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Read and answer, or pass the request on."""
        request = _Request.of(scope)
        if request is None:
            await self.application(scope, receive, send)
            return
        name_route(scope, request.route.name)
        sort = (request.route.name, request.is_secure)
        headers = self._learned.of(sort)
        if headers is None:
            await self.application(scope, receive, self._learned.learning(sort, scope["path"], send))
        elif (body := await body_of(receive)) is not None:
            scope, found = await self._found(request)
            if found is None:
                await self.application(scope, replayed(body, receive), send)
            else:
                tagged = [(b"etag", found.etag.encode())] if found.etag else []
                await answer(send, found.body, [*headers, *tagged])

    async def _found(self, request: _Request) -> tuple[Any, Answer | None]:
        """Return the answer; without one the scope is for the view."""
        try:
            client = await request.client()
        except UNAVAILABLE as error:
            return recent_failure().passed_on(request.scope, error), None
        if client is None:
            return request.scope, None
        try:
            quotas.admit_request(access.pk_of(client.caller.user))
        except QuotaExceeded:  # nothing was counted: the view asks once more
            return request.scope, None
        try:
            return request.scope, await request.answer(client)
        except UNAVAILABLE as error:
            return recent_failure().passed_on({**request.scope, COUNTED: True}, error), None
        except Exception:  # the view meets it again, and words it
            return {**request.scope, COUNTED: True}, None


class _Request(NamedTuple):
    """A request that may be a read like most."""

    scope: Any
    headers: dict[str, str]
    route: Route
    conversation_id: str
    is_secure: bool

    @classmethod
    def of(cls, scope: Any) -> _Request | None:
        """Return the request; None if its view has to answer."""
        if scope["method"] not in ("GET", "HEAD") or not has_built_in_parts():
            return None
        for route in ROUTES:
            if match := route.address.fullmatch(scope["path"]):
                headers = headers_of(scope)
                if headers.get("content-length", "0") != "0" or not is_of_a_program(headers):
                    return None
                if "content-type" in headers:  # at an address of two wires this may tell which is meant
                    return None
                named = match.groupdict().get("conversation_id", "")
                return cls(scope, headers, route, named, is_secure(scope, headers))
        return None

    async def client(self) -> Found | None:
        """Return who asks; None if the view has to answer."""
        return await who_asks(
            self.scope,
            self.headers,
            self.route.name,
            conversation_id=None,
            takes_conversation_keys=self.route.takes_conversation_keys,
        )

    async def answer(self, client: Found) -> Answer:
        """Read in a thread of the store. Raise NotDirect, or whatever else happens."""
        user, opened = client.caller
        scheme = "https" if self.is_secure else "http"
        read = Read(
            user,
            limits_of(user).only if opened is None else opened.pk,
            self.conversation_id,
            self.scope["query_string"].decode("latin-1"),
            f"{scheme}://{self.headers['host']}",
        )
        async with asyncio.timeout(admission.WAIT_S):  # a client's own reads may have all of its threads
            look = partial(recent_failure().run, partial(self.route.read, read))
            return await astore.database().read(client.share, look)
