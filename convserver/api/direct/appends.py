"""The ASGI application that makes appends on the event loop, before the views."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from conversations import access
from conversations.engines.lost_commits import LostCommit
from conversations.exceptions import OutcomeUnknown, QuotaExceeded
from conversations.payloads import bounds
from conversations.storage import quotas
from convserver.api.bounded_bodies import replayed
from convserver.api.direct.callers import Caller
from convserver.api.direct.calls import Append, Call, NotDirect, Reply
from convserver.api.direct.outcomes import COUNTED, OUTCOME, Outcome
from convserver.api.direct.recent_failure import recent_failure
from convserver.api.direct.requests import (
    ID,
    Found,
    Headers,
    LearnedHeaders,
    answer,
    body_of,
    is_of_a_program,
    is_secure,
    who_asks,
)
from convserver.api.errors import UNAVAILABLE
from convserver.api.native import events as native
from convserver.api.v0 import events as v0
from convserver.api.v1.agent import events as v1
from convserver.serving.measuring import name_route
from sessions_app.identity.authentication import headers_of

_JSON = re.compile(r"application/json *(?:; *charset=utf-8)?", re.IGNORECASE)


class Route(NamedTuple):
    """An address to append at."""

    name: str
    """The route's name, by which its view is found."""
    address: re.Pattern[str]
    append: Append
    takes_conversation_keys: bool = False
    requires_json: bool = False
    """Whether the content type must say that it is JSON."""


_NATIVE, _V0, _AGENT = (rf"{base}/conversations/{ID}" for base in ("/api/native", "/api", "/agent/api"))
ROUTES = (
    Route("native-events", re.compile(f"{_NATIVE}/events"), native.append, requires_json=True),
    Route("v0-events", re.compile(f"{_V0}/events"), v0.append_event),
    Route("v0-message", re.compile(f"{_V0}/message"), v0.append_message),
    Route("agent-events", re.compile(f"{_AGENT}/events"), v1.append, takes_conversation_keys=True),
)


class DirectAppends:
    """An application that makes appends itself, if they are like most; what is not goes to the views.

    Its answers have the headers that the view's own had, so the first request of each sort goes to the view.
    """

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application
        self._learned = LearnedHeaders()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Append and answer, or pass the request on."""
        request = _Request.of(scope)
        if request is None:
            await self.application(scope, receive, send)
            return
        name_route(scope, request.route.name)
        sort = (request.route.name, is_secure(scope, request.headers))
        headers = self._learned.of(sort)
        if headers is None:
            await self.application(scope, receive, self._learned.learning(sort, scope["path"], send))
        elif (body := await body_of(receive)) is not None:
            # A body may come slowly, and who may append is asked after its end, as the views do.
            try:
                found = await request.caller()
            except UNAVAILABLE as error:
                await self.application(
                    recent_failure().passed_on(scope, error), replayed(body, receive), send
                )
                return
            if found is None:
                await self.application(scope, replayed(body, receive), send)
            else:
                await self._append(request, found.caller, body, headers, receive, send)

    async def _append(
        self, request: _Request, caller: Caller, body: bytes, headers: Headers, receive: Any, send: Any
    ) -> None:
        try:
            quotas.admit_request(access.pk_of(caller.user))
        except QuotaExceeded:  # nothing was counted: the view asks once more, before it reads the body
            await self.application(request.scope, replayed(body, receive), send)
            return
        passed = {**request.scope, COUNTED: True}
        try:
            reply = await request.append(caller, body)
        except NotDirect:
            pass
        except Exception as error:  # the view words it
            passed[OUTCOME] = Outcome(error=error, is_unknown=isinstance(error, OutcomeUnknown | LostCommit))
        else:
            if reply.is_success:  # what fails from here on is the client's way, not the append
                await answer(send, reply.body.encode(), headers)
                return
            passed[OUTCOME] = Outcome(value=reply.value, is_unknown=reply.is_unknown)
        await self.application(passed, replayed(body, receive), send)


class _Request(NamedTuple):
    """A request that may be an append like most."""

    scope: Any
    headers: dict[str, str]
    route: Route
    conversation_id: str

    @classmethod
    def of(cls, scope: Any) -> _Request | None:
        """Return the request; None if its view has to answer."""
        if scope["method"] != "POST":
            return None
        for route in ROUTES:
            if match := route.address.fullmatch(scope["path"]):
                request = cls(scope, headers_of(scope), route, match["conversation_id"])
                return request if request.is_plain() else None
        return None

    def is_plain(self) -> bool:
        """Say whether nothing but a small body, keys and the address decide about the answer."""
        headers = self.headers
        length = headers.get("content-length", "")
        if not length.isdigit() or not 0 < int(length) <= bounds.LIGHT_MAX_CHARACTERS:
            return False
        if self.route.requires_json and not _JSON.fullmatch(headers.get("content-type", "")):
            return False
        return is_of_a_program(headers)

    async def caller(self) -> Found | None:
        """Return who asks; None if the view has to answer."""
        return await who_asks(
            self.scope,
            self.headers,
            self.route.name,
            conversation_id=self.conversation_id,
            takes_conversation_keys=self.route.takes_conversation_keys,
        )

    async def append(self, caller: Caller, body: bytes) -> Reply:
        """Append. Raise NotDirect, or what the view's own append raises."""
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise NotDirect from error
        if caller.conversation is None or not bounds.is_light(text):
            raise NotDirect
        call = Call(
            caller.user,
            caller.conversation,
            text,
            self.scope["query_string"].decode("latin-1"),
            self.headers,
        )
        return await self.route.append(call)
