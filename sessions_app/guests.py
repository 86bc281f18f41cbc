"""Who was let into a socket, and whether what let them in still does; the close codes of refusals."""

from __future__ import annotations

import asyncio
import logging

from conversations.access import Visitor, pk_of
from sessions_app import astore
from sessions_app.authentication import Credentials, lets_in_still

logger = logging.getLogger(__name__)

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
