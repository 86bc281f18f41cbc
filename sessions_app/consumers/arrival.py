"""Handshakes of the native sockets: authentication, parameters of the address, refusals."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from urllib.parse import parse_qs

from asgiref.typing import WebSocketScope

from sessions_app import astore, native
from sessions_app.authentication import (
    credentials_of,
    headers_of,
    holder_of_key,
    visitor,
)
from sessions_app.consumers.socket import Socket
from sessions_app.guests import NOT_AUTHENTICATED, Guest, Refused
from sessions_app.native import BadFrame

logger = logging.getLogger(__name__)

AUTH_WAIT_S = 10.0
AUTH_FRAME_MAX_CHARACTERS = 4096
"""The longest frame that is read from an unauthenticated client."""


async def authenticated(socket: Socket) -> Guest:
    """Authenticate by cookie or header, otherwise by a first frame `auth`.

    Raise Refused if neither is valid, Closed if the client leaves first.
    """
    credentials = credentials_of(headers_of(socket.scope))
    user = await astore.call(visitor, credentials)
    if user.is_authenticated:
        return Guest(user, credentials)
    if credentials.keys:
        raise Refused(NOT_AUTHENTICATED, "This key is unknown or was revoked.")
    with suppress(TimeoutError, BadFrame):
        async with asyncio.timeout(AUTH_WAIT_S):
            text = await socket.receive_text() or ""
        if len(text) > AUTH_FRAME_MAX_CHARACTERS:
            raise Refused(NOT_AUTHENTICATED, "A first frame without a key in a header is auth, and short.")
        frame = native.parse(text)
        token = frame.text("token") if frame.type == "auth" else ""
        holder = await astore.call(holder_of_key, [token]) if token else None
        if holder is not None:
            if frame.id is not None:
                await socket.send_text(native.frame_json(type="ack", id=frame.id))
            return Guest(holder, replace(credentials, api_key=token))
    raise Refused(
        NOT_AUTHENTICATED, "Log in, send a token in a header, or send an auth frame with a token first."
    )


def query_of(scope: WebSocketScope) -> dict[str, str]:
    """Return the parameters of the address; of a repeated one the last."""
    parameters = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return {name: values[-1] for name, values in parameters.items()}
