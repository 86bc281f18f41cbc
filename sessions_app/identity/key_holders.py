"""The holders of keys in handshakes: looked up once for a crowd of sockets with the same key.

One client may open a thousand sockets in a second, and each look-up occupies a thread. A reduction of
access empties this at once; `access_watch` checks a socket whose look-up began before that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from datetime import timedelta
from hashlib import sha256
from typing import NamedTuple
from weakref import WeakSet

from django.utils import timezone

from conversations.access import Visitor
from sessions_app import astore
from sessions_app.event_loops import PerEventLoop
from sessions_app.identity import access_watch, scopes
from sessions_app.identity.authentication import Credentials, visitor

KNOWN_S = 1.0
"""Seconds after the beginning of a look-up in which others with the same key share it."""
KNOWN_MAX = 10_000
"""At most this many keys are known; then all are forgotten."""


class _Look(NamedTuple):
    found: asyncio.Task[Visitor]
    until: float


class KeyHolders:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks: dict[Hashable, _Look] = {}

    async def find(self, credentials: Credentials) -> Visitor:
        """Return the user of these credentials, who is anonymous if they are not valid.

        Only look-ups by key are shared: logins end in many ways.
        """
        if not credentials.keys:
            return await astore.call(visitor, credentials)
        name = (credentials.session_key, *map(_digest, (credentials.api_key, credentials.bearer)))
        look = self._looks.get(name)
        if look is None or self._clock() >= look.until:
            look = self._begun(name, credentials)
        user = await asyncio.shield(look.found)  # a client that leaves must not end it for the others
        if _may_be_other_in_a_moment(user):
            self._forget(name, look)
        return user

    def forget_all(self) -> None:
        """Forget every holder, from any thread."""
        self._looks.clear()

    def _begun(self, name: Hashable, credentials: Credentials) -> _Look:
        if len(self._looks) >= KNOWN_MAX:
            self._looks.clear()
        found = asyncio.create_task(astore.call(visitor, credentials))
        look = self._looks[name] = _Look(found, self._clock() + KNOWN_S)

        def forget_failed(done: asyncio.Task[Visitor]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._forget(name, look)

        found.add_done_callback(forget_failed)
        return look

    def _forget(self, name: Hashable, look: _Look) -> None:
        if self._looks.get(name) is look:
            self._looks.pop(name, None)


def is_same(one: Visitor, other: Visitor) -> bool:
    """Return whether two clients have the same user and, if one came by a token, the same token."""
    return (one.pk, scopes.token_of(one)) == (other.pk, scopes.token_of(other))


def _may_be_other_in_a_moment(user: Visitor) -> bool:
    """Return whether the key may be created in the next moment, or expires within KNOWN_S."""
    token = scopes.token_of(user)
    if token is None or token.expires_at is None:
        return not user.is_authenticated
    return token.expires_at <= timezone.now() + timedelta(seconds=KNOWN_S)


def _digest(key: str | None) -> bytes | None:
    return None if key is None else sha256(key.encode(errors="surrogatepass")).digest()


_all: WeakSet[KeyHolders] = WeakSet()


def _made() -> KeyHolders:
    made = KeyHolders()
    _all.add(made)
    return made


_key_holders = PerEventLoop(_made)


def get_key_holders() -> KeyHolders:
    return _key_holders.get()


def _forget_all(user_pk: int) -> None:
    for each in list(_all):
        each.forget_all()


access_watch.add_listener(_forget_all)
