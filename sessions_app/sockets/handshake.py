"""Handshakes of the native sockets: authentication, parameters of the address, refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from urllib.parse import parse_qs

from asgiref.typing import WebSocketScope

from conversations.exceptions import QuotaExceeded
from sessions_app import astore
from sessions_app.identity import known_sockets, open_sockets
from sessions_app.identity.authentication import credentials_of, headers_of, holder_of_key
from sessions_app.identity.key_holders import get_key_holders
from sessions_app.identity.key_throttle import DETAIL, may_try
from sessions_app.identity.principals import NOT_AUTHENTICATED, TOO_MUCH, Principal, Refused
from sessions_app.sockets.native import frames
from sessions_app.sockets.native.frames import BadFrame
from sessions_app.sockets.socket import Closed, Socket

logger = logging.getLogger(__name__)

# As on the V1 wire, which shares it (spec V1 §3.1).
AUTH_WAIT_S = 10.0
AUTH_FRAME_MAX_CHARACTERS = 4096
"""The longest frame that is read from an unauthenticated client."""


async def authenticated(socket: Socket) -> Principal:
    """Authenticate by cookie or header, otherwise by a first frame `auth`.

    Raise Refused if neither is valid, Closed if the client leaves first.
    """
    credentials = credentials_of(headers_of(socket.scope))
    user = await get_key_holders().find(credentials)
    if user.is_authenticated:
        return Principal(user, credentials)
    if credentials.keys:
        raise Refused(NOT_AUTHENTICATED, "This key is unknown or was revoked.")
    with suppress(TimeoutError, BadFrame):
        async with asyncio.timeout(AUTH_WAIT_S):
            text = await socket.receive_text() or ""
        if len(text) > AUTH_FRAME_MAX_CHARACTERS:
            raise Refused(NOT_AUTHENTICATED, "A first frame without a key in a header is auth, and short.")
        frame = frames.parse(text)
        token = frame.text("token") if frame.type == "auth" else ""
        if token and not may_try(socket.scope, token):
            raise Refused(TOO_MUCH, DETAIL)
        holder = await astore.call(holder_of_key, [token]) if token else None
        if holder is not None:
            if frame.id is not None:
                await socket.send_text(frames.frame_json(type="ack", id=frame.id))
            return Principal(holder, replace(credentials, api_key=token))
    raise Refused(
        NOT_AUTHENTICATED, "Log in, send a token in a header, or send an auth frame with a token first."
    )


@asynccontextmanager
async def within_quotas(socket: Socket, principal: Principal) -> AsyncIterator[None]:
    """Count the user's socket and accept its frames; close it with 4429 if a quota is exceeded."""
    try:
        with open_sockets.counted(principal.user_pk):
            known_sockets.let_in(socket.scope)
            yield
    except QuotaExceeded as error:
        with suppress(Closed, TimeoutError):
            await socket.send_text(frames.frame_json(**frames.error_frame(error)))
        raise Refused(TOO_MUCH, str(error)) from error


def query_of(scope: WebSocketScope) -> dict[str, str]:
    """Return the parameters of the address; of a repeated one the last."""
    parameters = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return {name: values[-1] for name, values in parameters.items()}
