"""How a client of any native socket arrives: who it is, what its address asks, why it is refused."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from urllib.parse import parse_qs

from asgiref.typing import WebSocketScope

from conversations.access import Visitor, pk_of
from sessions_app import astore, native
from sessions_app.authentication import (
    Credentials,
    credentials_of,
    headers_of,
    holder_of_key,
    lets_in_still,
    visitor,
)
from sessions_app.consumers.socket import Socket
from sessions_app.native import BadFrame

logger = logging.getLogger(__name__)

AUTH_WAIT_S = 10.0
AUTH_FRAME_MAX_CHARACTERS = 4096
"""Nothing longer is read of somebody who has not said who they are."""
CHECK_S = 60.0
"""So often, and with a heartbeat, an open socket asks whether its credentials still let it in."""

BAD_REQUEST, NOT_AUTHENTICATED, NOT_FOUND, TOO_SLOW = 4400, 4401, 4404, 4408


class Refused(Exception):
    """The socket cannot go on; the code says why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Guest:
    """Who was let in, and by what."""

    def __init__(self, user: Visitor, credentials: Credentials) -> None:
        self.user = user
        self._credentials = credentials
        self._checked_at = asyncio.get_running_loop().time()

    async def check(self) -> None:
        """Raise Refused once the token is revoked, the login over or the user inactive."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < CHECK_S:
            return
        self._checked_at = now
        try:
            is_let_in = await astore.call(lets_in_still, self._credentials, pk_of(self.user))
        except Exception as error:  # asked again a minute later
            logger.warning("The credentials of a socket could not be checked: %s", error)
            return
        if not is_let_in:
            raise Refused(NOT_AUTHENTICATED, "What let you in does not any more.")


async def authenticated(socket: Socket) -> Guest:
    """Return who connects: by cookie or header, else by a first frame `auth`.

    Raise Refused if neither lets anybody in, Closed if the client leaves first.
    """
    credentials = credentials_of(headers_of(socket.scope))
    user = await astore.call(visitor, credentials)
    if user.is_authenticated:
        return Guest(user, credentials)
    if credentials.keys:
        raise Refused(NOT_AUTHENTICATED, "This key opens nothing: it is unknown or revoked.")
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
