"""Authenticated clients of sockets, and the validity of their credentials; close codes of refusals."""

from __future__ import annotations

import asyncio

from conversations import access
from conversations.access import Visitor, pk_of
from conversations.exceptions import ConversationNotFound
from conversations.models import ConversationRef, normal_id
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.authentication import Credentials, lets_in_still
from sessions_app.conversation_keys import opened_by

_unchecked = Outage(__name__, "The credentials of a socket could not be checked")

CHECK_S = 60.0
"""An open socket checks its credentials this often, with a heartbeat."""

BAD_REQUEST, NOT_AUTHENTICATED, NOT_FOUND, TOO_SLOW = 4400, 4401, 4404, 4408


class Refused(Exception):
    """The socket cannot continue; the code says why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Guest:
    """An authenticated client, and its credentials."""

    def __init__(self, user: Visitor, credentials: Credentials) -> None:
        self.user = user
        self._credentials = credentials
        self._checked_at = asyncio.get_running_loop().time()

    async def check(self) -> None:
        """Raise Refused once the token is revoked, the login has ended, or the user is inactive."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < CHECK_S:
            return
        self._checked_at = now
        try:
            is_let_in = await astore.call(self._is_let_in)
        except Exception as error:  # checked again a minute later
            _unchecked.failed(error)
            return
        if not is_let_in:
            raise Refused(NOT_AUTHENTICATED, "Your access was revoked.")

    def reach(self, conversation_id: str) -> ConversationRef:
        """Return the conversation if this client may use it. Raise ConversationNotFound otherwise."""
        return access.writable(self.user, conversation_id)

    def _is_let_in(self) -> bool:
        return lets_in_still(self._credentials, pk_of(self.user))


class KeyHolder(Guest):
    """A client with a conversation's key: acts for its owner, in this conversation only."""

    def __init__(self, owner: Visitor, key: str) -> None:
        super().__init__(owner, Credentials(api_key=key))
        self._key = key

    def reach(self, conversation_id: str) -> ConversationRef:
        """Return the conversation of the key. Raise ConversationNotFound for any other."""
        opened = opened_by(self._key)
        if opened is None or opened.public_id != normal_id(conversation_id):
            raise ConversationNotFound("Conversation not found.")
        return opened

    def _is_let_in(self) -> bool:
        return opened_by(self._key) is not None
