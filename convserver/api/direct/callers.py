"""Who asks, and what they may do: looked up in the database, and remembered for at most a second.

What takes access away in this process empties it at once, as does the hint of another process. A deleted
conversation needs nothing here: an append refuses it under the lock of its row, and a read finds none.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from functools import partial
from hashlib import sha256
from typing import NamedTuple
from weakref import WeakSet

from django.contrib.auth.models import User
from django.utils import timezone

from conversations import access
from conversations.events import ConversationRef
from convserver.api.direct.recent_failure import recent_failure
from convserver.api.errors import UNAVAILABLE
from sessions_app import astore
from sessions_app.event_loops import PerEventLoop
from sessions_app.identity import access_watch, scopes
from sessions_app.identity.authentication import Credentials, visitor
from sessions_app.identity.conversation_keys import opened_by
from sessions_app.models import Scope

KNOWN_S = 1.0
"""Seconds after which a caller is looked up again, counted from the beginning of the last look."""
KNOWN_MAX = 10_000
"""At most this many are remembered; then all are forgotten."""


class Caller(NamedTuple):
    """A client, and the conversation that it may append to, or the one that its key opens."""

    user: access.Visitor
    conversation: ConversationRef | None

    @property
    def user_pk(self) -> int:
        return access.pk_of(self.user)


class Asked(NamedTuple):
    """What a request has to be allowed."""

    credentials: Credentials
    conversation_id: str | None
    """The conversation that is appended to; None for a read, which finds only what the client may read."""
    scope: Scope | None
    """What the token must have; None where each frame says it."""
    takes_conversation_keys: bool
    """Whether the key of one conversation opens the door."""

    def name(self) -> Hashable:
        """Return what identifies the caller."""
        # No key in clear outlives its request.
        digests = [sha256(key.encode(errors="surrogatepass")).digest() for key in self.credentials.keys]
        # The key of a conversation counts in one of the two headers only.
        has_header = self.credentials.api_key is not None
        return (self.conversation_id, self.scope, self.takes_conversation_keys, has_header, *digests)


class _Known(NamedTuple):
    caller: Caller
    until: float


class Callers:
    """The callers that one event loop knows."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Hashable, _Known] = {}
        self._removals = 0

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._known)

    async def find(self, asked: Asked, client: int) -> Caller | None:
        """Return who asks; None for a client that may not do this. Raise UNAVAILABLE.

        `client` is the key of the user whose share of the readers a look takes.
        """
        name = asked.name()
        known = self._known.get(name)
        if known is not None and self._clock() < known.until:
            return known.caller
        # Counted from before the look: what changes while it is made is not seen by it.
        until, removals = self._clock() + KNOWN_S, self._removals
        look = partial(recent_failure().run, partial(_looked_up, asked))
        try:
            caller = await astore.database().read(client, look)
        except UNAVAILABLE:
            raise
        except Exception:  # the view meets it again, and words it
            return None
        if caller is not None:
            # A token that expires within the second opens nothing afterwards.
            until = min(until, self._clock() + _left_s(caller.user))
            self._remember(name, _Known(caller, until), removals)
        return caller

    def _remember(self, name: Hashable, known: _Known, removals: int) -> None:
        with self._lock:
            if removals != self._removals:  # the look may have been made before the access was taken away
                return
            # Keys that were used once would stay: nothing removes a caller whose second is over.
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[name] = known

    def forget(self, user_pk: int) -> None:
        """Forget what this user may do, from any thread."""
        with self._lock:
            self._removals += 1
            of_user = [name for name, known in self._known.items() if known.caller.user.pk == user_pk]
            for name in of_user:
                del self._known[name]


_all: WeakSet[Callers] = WeakSet()


def _made() -> Callers:
    made = Callers()
    _all.add(made)
    return made


_callers = PerEventLoop(_made)


def get_callers() -> Callers:
    """Return the callers that the running event loop knows."""
    return _callers.get()


def _forget(user_pk: int) -> None:
    # A copy: an event loop that begins in another thread adds its own meanwhile.
    for each in list(_all):
        each.forget(user_pk)


access_watch.add_listener(_forget)


def _left_s(user: access.Visitor) -> float:
    """Return for how many seconds the user's token is valid still."""
    token = scopes.token_of(user)
    if token is None or token.expires_at is None:
        return math.inf
    return (token.expires_at - timezone.now()).total_seconds()


def _looked_up(asked: Asked) -> Caller | None:
    return _by_conversation_key(asked) if asked.takes_conversation_keys else _by_visitor(asked)


def _by_conversation_key(asked: Asked) -> Caller | None:
    opened = opened_by(asked.credentials.api_key or "")
    if opened is None:
        return _by_visitor(asked)
    # The key stays valid in the database while its owner is deactivated.
    owner = User.objects.filter(pk=opened.owner_id, is_active=True).first()
    if owner is None:
        return None
    if asked.conversation_id and access.writable(owner, asked.conversation_id).pk != opened.pk:
        return None
    return Caller(owner, opened)


def _by_visitor(asked: Asked) -> Caller | None:
    user = visitor(asked.credentials)
    if user.pk is None or (asked.scope is not None and not scopes.may(user, asked.scope)):
        return None
    if asked.conversation_id is None:
        return Caller(user, None)
    return Caller(user, access.writable(user, asked.conversation_id))
