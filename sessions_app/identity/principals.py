"""Authenticated clients of sockets, and the validity of their credentials; close codes of refusals."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from django.utils import timezone

from conversations import access
from conversations.access import Visitor, pk_of
from conversations.exceptions import ConversationNotFound
from conversations.models import ConversationRef, normal_id
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.identity import access_watch, scopes
from sessions_app.identity.authentication import Credentials, lets_in_still
from sessions_app.identity.conversation_keys import opened_by
from sessions_app.identity.scopes import ScopeTooSmall
from sessions_app.models import Scope

_unchecked = Outage(__name__, "The credentials of a socket could not be checked")

CHECK_S = 60.0
"""An open socket checks its credentials this often, with a heartbeat: a net below `access_watch`."""
RECHECK_S = 1.0
"""A failed check is repeated after this long."""
REVOKED = "Your access was revoked."

BAD_REQUEST, NOT_AUTHENTICATED, NOT_ALLOWED, NOT_FOUND, TOO_SLOW, SUPERSEDED, TOO_MUCH = (
    4400,
    4401,
    4403,
    4404,
    4408,
    4409,
    4429,
)


class Refused(Exception):
    """The socket cannot continue; the code is the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Principal:
    """An authenticated client, and its credentials; `access_watch` requests checks of them."""

    def __init__(self, user: Visitor, credentials: Credentials) -> None:
        self.user = user
        self.user_pk = pk_of(user)
        self.checked_at = timezone.now()
        self._credentials = credentials
        self._loop = asyncio.get_running_loop()
        self._due_at = self._loop.time() + CHECK_S
        token = scopes.token_of(user)
        self._expires_at: float | None = None
        if token is not None and token.expires_at is not None:
            self._expires_at = self._loop.time() + (token.expires_at - timezone.now()).total_seconds()
        # Numbers, so that a suspicion that comes during a check asks for another one.
        self._suspicions = self._cleared = 0
        self._is_to_check = asyncio.Event()
        self._checking = asyncio.Lock()
        access_watch.watch(self.user_pk, self)

    def suspect(self) -> None:
        """Require a check of the credentials before the next action, from any thread."""
        self._suspicions += 1
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._is_to_check.set)

    async def stay(self, seconds: float) -> None:
        """Return after this many seconds. Raise Refused once the access has ended."""
        end = self._loop.time() + seconds
        while (left := end - self._loop.time()) > 0:
            await self._pause(left)
            await self.check()

    async def _pause(self, seconds: float) -> None:
        """Return after this many seconds, or once the credentials are to be checked."""
        if self._is_suspect and not self._is_to_check.is_set():  # a check has failed
            seconds = min(seconds, RECHECK_S)
        elif not self._is_suspect and self._expires_at is not None:
            seconds = min(seconds, max(0.0, self._expires_at - self._loop.time()))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_to_check.wait()
        self._is_to_check.clear()

    async def check(self) -> None:
        """Raise Refused once the token is revoked, the login has ended, or the user is inactive."""
        if self._is_suspect or self._loop.time() >= self._due_at:
            try:
                await self._check()
            except Refused:
                raise
            except Exception as error:  # the check is repeated soon
                _unchecked.failed(error)

    async def require_access(self) -> None:
        """Raise Refused if the access has ended, as far as this process knows; call it before each write.

        It queries only after a reduction of access; then any error of the check is raised.
        """
        if self._is_suspect:
            await self._check()

    @property
    def _is_suspect(self) -> bool:
        has_expired = self._expires_at is not None and self._loop.time() >= self._expires_at
        return has_expired or self._suspicions != self._cleared

    async def _check(self) -> None:
        """Check the credentials; the principal stays suspect until they are found valid."""
        async with self._checking:
            began_at, suspicions = timezone.now(), self._suspicions
            self._due_at = self._loop.time() + CHECK_S
            if not await astore.call(self._is_let_in):
                self._cleared = -1  # for good: no number of suspicions equals it
                raise Refused(NOT_AUTHENTICATED, REVOKED)
            if self._cleared >= 0:
                self.checked_at, self._cleared = began_at, suspicions

    def may(self, scope: Scope) -> bool:
        return scopes.may(self.user, scope)

    def require(self, scope: Scope) -> None:
        """Raise ScopeTooSmall unless the client has this scope."""
        scopes.require(self.user, scope)

    def require_running(self, *, all_conversations: bool = False) -> None:
        """Raise Refused for a token without the scopes to read and to run, or of one conversation only."""
        self.require_reading(all_conversations=all_conversations)
        try:
            self.require(Scope.RUN)
        except ScopeTooSmall as error:
            raise Refused(NOT_ALLOWED, str(error)) from error

    def require_reading(self, *, all_conversations: bool = False) -> None:
        """Raise Refused for a token without the scope to read, or of one conversation only."""
        try:
            self.require(Scope.READ)
            if all_conversations:
                scopes.require_all_conversations(self.user)
        except ScopeTooSmall as error:
            raise Refused(NOT_ALLOWED, str(error)) from error

    def reach(self, conversation_id: str) -> ConversationRef:
        """Return the conversation if this client may use it. Raise ConversationNotFound otherwise."""
        return access.writable(self.user, conversation_id)

    def _is_let_in(self) -> bool:
        return lets_in_still(self._credentials, self.user_pk)


class KeyHolder(Principal):
    """A client with a conversation's key: acts for its owner, in this conversation only."""

    def __init__(self, owner: Visitor, key: str) -> None:
        super().__init__(owner, Credentials(api_key=key))
        self._key = key

    def opened(self) -> ConversationRef:
        """Return the conversation of the key. Raise ConversationNotFound if it opens none any more."""
        found = opened_by(self._key)
        if found is None:
            raise ConversationNotFound("Conversation not found.")
        return found

    def reach(self, conversation_id: str) -> ConversationRef:
        opened = opened_by(self._key)
        if opened is None or opened.public_id != normal_id(conversation_id):
            raise ConversationNotFound("Conversation not found.")
        return opened

    def _is_let_in(self) -> bool:
        return opened_by(self._key) is not None
