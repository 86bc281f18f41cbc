"""How a client of any native socket arrives: who it is, what its address asks, why it is refused."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import parse_qs

from asgiref.typing import WebSocketScope

from conversations.access import Visitor
from sessions_app import astore, native
from sessions_app.authentication import credentials_of, headers_of, holder_of_key, visitor
from sessions_app.consumers.socket import Socket
from sessions_app.native import BadFrame

AUTH_WAIT_S = 10.0

BAD_REQUEST, NOT_AUTHENTICATED, NOT_FOUND, TOO_SLOW = 4400, 4401, 4404, 4408


class Refused(Exception):
    """The socket cannot go on; the code says why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def authenticated(socket: Socket) -> Visitor:
    """Return who connects: by cookie or header, else by a first frame `auth`.

    Raise Refused if neither lets anybody in, Closed if the client leaves first.
    """
    credentials = credentials_of(headers_of(socket.scope))
    user = await astore.call(visitor, credentials)
    if user.is_authenticated:
        return user
    if credentials.keys:
        raise Refused(NOT_AUTHENTICATED, "This key opens nothing: it is unknown or revoked.")
    with suppress(TimeoutError, BadFrame):
        async with asyncio.timeout(AUTH_WAIT_S):
            frame = native.parse(await socket.receive_text() or "")
        holder = await astore.call(holder_of_key, [frame.text("token")]) if frame.type == "auth" else None
        if holder is not None:
            if frame.id is not None:
                await socket.send_text(native.frame_json(type="ack", id=frame.id))
            return holder
    raise Refused(
        NOT_AUTHENTICATED, "Log in, send a token in a header, or send an auth frame with a token first."
    )


def query_of(scope: WebSocketScope) -> dict[str, str]:
    """Return the parameters of the address; of a repeated one the last."""
    parameters = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return {name: values[-1] for name, values in parameters.items()}
