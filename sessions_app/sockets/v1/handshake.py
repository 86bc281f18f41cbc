"""Handshakes of the V1 sockets: the conversation, authentication, refusals."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from asgiref.typing import WebSocketScope
from django.contrib.auth.models import User

from conversations.access import Visitor
from conversations.exceptions import ConversationNotFound
from conversations.models import ConversationRef, normal_id
from conversations.payloads.jsontext import is_sendable
from sessions_app import astore
from sessions_app.identity.authentication import (
    Credentials,
    credentials_of,
    headers_of,
    holder_of_key,
    lets_everybody_in,
    visitor,
)
from sessions_app.identity.conversation_keys import opened_by
from sessions_app.identity.key_throttle import DETAIL, may_try
from sessions_app.identity.principals import (
    BAD_REQUEST,
    NOT_AUTHENTICATED,
    NOT_FOUND,
    TOO_MUCH,
    KeyHolder,
    Principal,
    Refused,
)
from sessions_app.sockets.handshake import AUTH_FRAME_MAX_CHARACTERS, AUTH_WAIT_S
from sessions_app.sockets.socket import Socket

FAILED = "Authentication failed"
GONE = "Conversation not found"

_UUID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def public_id_of(scope: WebSocketScope) -> str:
    """Return the id in the address. Raise Refused if it is not a UUID."""
    given: str = scope["url_route"]["kwargs"]["conversation_id"]  # type: ignore[typeddict-item]
    if not _UUID.fullmatch(given):
        raise Refused(BAD_REQUEST, "The address names no UUID.")
    return normal_id(given)


async def principal_by_address(
    scope: WebSocketScope, query: Mapping[str, str], public_id: str | None
) -> Principal | None:
    """Authenticate by the address, a header or a cookie; return None if a first frame is needed.

    Without a conversation's id, the key of any conversation opens that one. Raise Refused for invalid keys.
    """
    credentials = credentials_of(headers_of(scope))
    keys = [key for key in (query.get("session_api_key"), *credentials.keys) if key]
    entry = await astore.call(_entry, keys, credentials, public_id)
    if entry is not None:
        return entry.principal()
    if keys:
        raise Refused(NOT_AUTHENTICATED, FAILED)
    return None


async def principal_by_frame(socket: Socket, public_id: str | None) -> Principal:
    """Authenticate by the first frame. Raise Refused if it is late, missing or invalid."""
    with suppress(TimeoutError):
        async with asyncio.timeout(AUTH_WAIT_S):
            text = await socket.receive_text() or ""
        key = _key_in(text)
        if key and is_sendable(key) and not may_try(socket.scope, key):
            raise Refused(TOO_MUCH, DETAIL)
        entry = await astore.call(_entry, [key], Credentials(), public_id) if key else None
        if entry is not None:
            return entry.principal()
    raise Refused(NOT_AUTHENTICATED, FAILED)


async def reached(principal: Principal, public_id: str) -> ConversationRef:
    """Return the conversation. Raise Refused if it is deleted, another user's, or does not exist."""
    try:
        return await astore.call(principal.reach, public_id)
    except ConversationNotFound as error:
        raise Refused(NOT_FOUND, GONE) from error


def is_auth(frame: Mapping[str, Any]) -> bool:
    """Return whether a client's frame authenticates, instead of addressing the agent."""
    return frame.get("type") == "auth"


class _Entry(NamedTuple):
    """An authenticated client and its credentials; `key` if that is a conversation's."""

    user: Visitor
    credentials: Credentials
    key: str | None = None

    def principal(self) -> Principal:
        return Principal(self.user, self.credentials) if self.key is None else KeyHolder(self.user, self.key)


def _entry(keys: list[str], credentials: Credentials, public_id: str | None) -> _Entry | None:
    """Return the client of the first valid key.

    A conversation's key opens no other conversation; without required credentials, it closes none either.
    """
    for key in filter(is_sendable, keys):  # a lone half of a character cannot be hashed
        opened = opened_by(key)
        is_meant = public_id is None or (opened is not None and opened.public_id == public_id)
        if opened is not None and (is_meant or not lets_everybody_in()):
            # No other credentials count: the key opens this conversation for its owner and nothing else.
            return _Entry(User.objects.get(pk=opened.owner_id), Credentials(), key)
        holder = holder_of_key([key])
        if holder is not None:
            return _Entry(holder, Credentials(api_key=key))
    if keys and not lets_everybody_in():  # a wrong key must not pass by a login's cookie
        return None
    credentials = replace(credentials, api_key=None, bearer=None)
    user = visitor(credentials)
    return _Entry(user, credentials) if user.is_authenticated else None


def _key_in(text: str) -> str:
    """Return the key in a first frame; empty if it is another frame."""
    if len(text) > AUTH_FRAME_MAX_CHARACTERS:
        return ""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    match frame:
        case {"type": "auth", "session_api_key": str(key)}:
            return key
        case _:
            return ""
