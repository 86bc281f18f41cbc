"""What direct appends and direct reads share: which requests are like most, who asks, and the answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from django.conf import settings
from django.urls import resolve

from convserver.api.direct.callers import Asked, Caller, get_callers
from convserver.api.scopes import needed
from convserver.configuration import BUILT_IN_MANAGERS, BUILT_IN_STORES, BUILT_IN_VALIDATORS, STANDALONE
from convserver.serving.clients import holder_of_share
from sessions_app.identity.authentication import credentials_of
from sessions_app.identity.conversation_keys import PREFIX as CONVERSATION_KEY
from sessions_app.identity.key_throttle import address_of

Headers = list[tuple[bytes, bytes]]
ID = r"(?P<conversation_id>[A-Za-z0-9_-]{1,100})"

_OF_ONE_ANSWER = (b"content-length", b"set-cookie", b"etag")
_TAKES_JSON = re.compile(r"\*/\*|application/json(?: *, *[a-z]+/[a-z]+)*(?: *, *\*/\*)?")


_BUILT_IN = (BUILT_IN_STORES[STANDALONE], BUILT_IN_VALIDATORS[STANDALONE])


def has_built_in_parts() -> bool:
    """Say whether store, validator and manager are the built-in ones; another one is asked by the views."""
    is_manager_built_in = settings.CONVERSATION_MANAGER in BUILT_IN_MANAGERS.values()
    return is_manager_built_in and _BUILT_IN == (
        settings.CONVERSATION_STORE,
        settings.CONVERSATION_VALIDATOR,
    )


def is_of_a_program(headers: Mapping[str, str]) -> bool:
    """Say whether keys and the address alone decide about the answer, which is to be JSON."""
    if not headers.keys().isdisjoint(("cookie", "origin")):
        return False
    return _TAKES_JSON.fullmatch(headers.get("accept", "*/*")) is not None


def is_secure(scope: Any, headers: Mapping[str, str]) -> bool:
    """Say whether the client's way to the server is encrypted, as far as its proxy says."""
    named = settings.SECURE_PROXY_SSL_HEADER
    if named is not None:
        name = named[0].removeprefix("HTTP_").replace("_", "-").lower()
        if name in headers:
            return headers[name].split(",")[0].strip() == named[1]
    return bool(scope.get("scheme") == "https")


class Found(NamedTuple):
    """Who asks."""

    caller: Caller
    share: int
    """The key of the user whose share of the threads the request takes."""


def _repeats_a_key(scope: Any) -> bool:
    """Say whether a header with a key is there twice: which of them counts is for the view to say."""
    names = [name.lower() for name, _ in scope["headers"]]
    return any(names.count(name) > 1 for name in (b"authorization", b"x-session-api-key"))


async def who_asks(
    scope: Any,
    headers: dict[str, str],
    route: str,
    *,
    conversation_id: str | None,
    takes_conversation_keys: bool,
) -> Found | None:
    """Return who asks; None if the view has to answer.

    `conversation_id` is that of the conversation that is changed; None for a read.
    """
    if _repeats_a_key(scope):
        return None
    credentials = credentials_of(headers)
    if not takes_conversation_keys and any(key.startswith(CONVERSATION_KEY) for key in credentials.keys):
        return None
    share = await holder_of_share(credentials, address_of(scope))
    if not isinstance(share, int):
        return None
    asked = Asked(credentials, conversation_id, needed(route, scope["method"]), takes_conversation_keys)
    caller = await get_callers().find(asked, share)
    return None if caller is None else Found(caller, share)


class LearnedHeaders:
    """The headers of views' successes, by the route's name and whether the client's way here is encrypted."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], Headers] = {}

    def of(self, sort: tuple[str, bool]) -> Headers | None:
        """Return those of this sort; None before the first success of its view."""
        return self._known.get(sort)

    def learning(self, sort: tuple[str, bool], path: str, send: Any) -> Any:
        """Return a `send` that remembers the headers of a success of this sort's own view."""

        async def learn(message: Any) -> None:
            is_success = message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK
            if is_success and resolve(path).view_name == sort[0]:
                headers = [(name.lower(), value) for name, value in message["headers"]]
                self._known[sort] = [each for each in headers if each[0] not in _OF_ONE_ANSWER]
            await send(message)

        return learn


async def body_of(receive: Any) -> bytes | None:
    """Return the body; None if the client has left."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def answer(send: Any, body: bytes, headers: Headers) -> None:
    """Answer with success."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
