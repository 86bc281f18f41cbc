"""The ASGI application that makes appends on the event loop, before the views."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple

from django.conf import settings

from conversations import access
from conversations.exceptions import QuotaExceeded
from conversations.payloads import bounds
from conversations.storage import quotas
from convserver.api.appends.calls import Append, Call, NotDirect, Reply
from convserver.api.appends.outcomes import COUNTED, OUTCOME, Outcome
from convserver.api.appends.writers import Asked, Writer, get_writers
from convserver.api.bounded_bodies import replayed
from convserver.api.native import events as native
from convserver.api.scopes import needed
from convserver.api.v0 import events as v0
from convserver.api.v1.agent import events as v1
from convserver.serving.clients import holder_of_share
from sessions_app.identity.authentication import credentials_of, headers_of
from sessions_app.identity.conversation_keys import PREFIX as CONVERSATION_KEY
from sessions_app.identity.key_throttle import address_of

Headers = list[tuple[bytes, bytes]]

_ID = r"(?P<conversation_id>[A-Za-z0-9_-]{1,100})"
_OF_ONE_ANSWER = (b"content-length", b"set-cookie")
_JSON = re.compile(r"application/json *(?:; *charset=utf-8)?", re.IGNORECASE)
_TAKES_JSON = re.compile(r"\*/\*|application/json(?: *, *[a-z]+/[a-z]+)*(?: *, *\*/\*)?")


class Route(NamedTuple):
    """An address to append at."""

    name: str
    """The route's name, by which its view is found."""
    address: re.Pattern[str]
    append: Append
    takes_conversation_keys: bool = False
    requires_json: bool = False
    """Whether the content type must say that it is JSON."""


_NATIVE, _V0, _AGENT = (rf"{base}/conversations/{_ID}" for base in ("/api/native", "/api", "/agent/api"))
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
        self._headers: dict[tuple[str, bool], Headers] = {}
        """By the route's name, and whether the client's way here is encrypted."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Append and answer, or pass the request on."""
        request = _Request.of(scope)
        if request is None:
            await self.application(scope, receive, send)
            return
        sort = (request.route.name, request.is_secure)
        headers = self._headers.get(sort)
        if headers is None:
            await self.application(scope, receive, self._learning(sort, send))
        elif (body := await _body(receive)) is not None:
            # A body may come slowly, and who may append is asked after its end, as the views do.
            if (writer := await request.writer()) is None:
                await self.application(scope, replayed(body, receive), send)
            else:
                await self._append(request, writer, body, headers, receive, send)

    def _learning(self, sort: tuple[str, bool], send: Any) -> Any:
        """Return a `send` that remembers the headers of a success."""

        async def learn(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
                headers = [(name.lower(), value) for name, value in message["headers"]]
                self._headers[sort] = [each for each in headers if each[0] not in _OF_ONE_ANSWER]
            await send(message)

        return learn

    async def _append(
        self, request: _Request, writer: Writer, body: bytes, headers: Headers, receive: Any, send: Any
    ) -> None:
        try:
            quotas.admit_request(access.pk_of(writer.user))
        except QuotaExceeded:  # nothing was counted: the view asks once more, before it reads the body
            await self.application(request.scope, replayed(body, receive), send)
            return
        passed = {**request.scope, COUNTED: True}
        try:
            reply = await request.append(writer, body)
        except NotDirect:
            pass
        except Exception as error:  # the view words it
            passed[OUTCOME] = Outcome(error=error)
        else:
            if reply.is_success:  # what fails from here on is the client's way, not the append
                await _answer(send, reply.body.encode(), headers)
                return
            passed[OUTCOME] = Outcome(value=reply.value)
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
        if not headers.keys().isdisjoint(("cookie", "origin")):
            return False
        length = headers.get("content-length", "")
        if not length.isdigit() or not 0 < int(length) <= bounds.LIGHT_MAX_CHARACTERS:
            return False
        if self.route.requires_json and not _JSON.fullmatch(headers.get("content-type", "")):
            return False
        return _TAKES_JSON.fullmatch(headers.get("accept", "*/*")) is not None

    async def writer(self) -> Writer | None:
        """Return who asks; None if the view has to answer."""
        credentials = credentials_of(self.headers)
        if not self.route.takes_conversation_keys and any(
            key.startswith(CONVERSATION_KEY) for key in credentials.keys
        ):
            return None
        holder = await holder_of_share(credentials, address_of(self.scope))
        if not isinstance(holder, int):
            return None
        asked = Asked(
            credentials,
            self.conversation_id,
            needed(self.route.name, "POST"),
            self.route.takes_conversation_keys,
        )
        return await get_writers().find(asked, holder)

    async def append(self, writer: Writer, body: bytes) -> Reply:
        """Append. Raise NotDirect, or what the view's own append raises."""
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise NotDirect from error
        if not bounds.is_light(text):
            raise NotDirect
        call = Call(
            writer.user,
            writer.conversation,
            text,
            self.scope["query_string"].decode("latin-1"),
            self.headers,
        )
        return await self.route.append(call)

    @property
    def is_secure(self) -> bool:
        """Whether the client's way to the server is encrypted, as far as its proxy says."""
        named = settings.SECURE_PROXY_SSL_HEADER
        if named is not None:
            name = named[0].removeprefix("HTTP_").replace("_", "-").lower()
            if name in self.headers:
                return self.headers[name].split(",")[0].strip() == named[1]
        return bool(self.scope.get("scheme") == "https")


async def _body(receive: Any) -> bytes | None:
    """Return the body; None if the client has left."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def _answer(send: Any, body: bytes, headers: Headers) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
