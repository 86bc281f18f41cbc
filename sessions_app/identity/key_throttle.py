"""The limit of guesses of the server's key in headers, addresses and first frames.

Wrong keys count by address, each different one once: a program that repeats an old key does not guess.
Each process counts by itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings

from sessions_app.identity.addresses import subscriber
from sessions_app.identity.authentication import credentials_of, headers_of, is_server_key
from sessions_app.identity.conversation_keys import PREFIX as CONVERSATION_KEY
from sessions_app.identity.principals import TOO_MUCH
from sessions_app.models import TOKEN_PREFIX
from sessions_app.refusals import Refusal, log_socket_refused, refuse

WINDOW_S = 300.0
WRONG_MAX = 10
"""After this many different wrong keys in a window, an address is refused until the window ends."""
WRONG_IN_ALL_MAX = 200
"""After this many wrong keys of all addresses in a window, an address has one attempt."""
ADDRESSES_MAX = 10_000
"""The wrong keys of at most this many addresses are kept; the oldest are forgotten first."""
DETAIL = "Too many wrong keys came from this address. Wait five minutes, then try again."
CODE = "too_many_attempts"


@dataclass(slots=True)
class _Guesses:
    """The wrong keys of one address in its window, as digests."""

    ends_at: float
    digests: set[bytes] = field(default_factory=set)


class KeyThrottle:
    """The wrong keys of all addresses; used on the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # In the order in which their windows began and will end.
        self._by_address: dict[str, _Guesses] = {}
        self._count = 0

    def admits(self, address: str, keys: list[str]) -> bool:
        """Count the wrong keys, and return whether this address may try them.

        Keys that cannot be the server's, such as tokens, are always admitted.
        """
        attempts = [key for key in keys if _may_be_server_key(key)]
        if not attempts:
            return True
        self._forget()
        client = subscriber(address)
        known = self._by_address.get(client)
        # An attacker may have many addresses; a person at a new one needs one attempt.
        allowed = WRONG_MAX if self._count < WRONG_IN_ALL_MAX else 1
        if known is not None and len(known.digests) >= allowed:
            return False
        for key in attempts:
            if is_server_key(key):
                continue
            known = self._by_address.setdefault(client, _Guesses(self._clock() + WINDOW_S))
            digest = sha256(key.encode(errors="surrogatepass")).digest()
            self._count += digest not in known.digests
            known.digests.add(digest)
        return True

    def _forget(self) -> None:
        """Forget addresses whose window has ended, and the oldest of too many."""
        now = self._clock()
        while self._by_address:
            client, oldest = next(iter(self._by_address.items()))
            if now < oldest.ends_at and len(self._by_address) <= ADDRESSES_MAX:
                return
            self._count -= len(oldest.digests)
            del self._by_address[client]


key_throttle = KeyThrottle()


class ThrottledKeys:
    """An application that answers 429 to addresses that have sent too many wrong keys."""

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket") and settings.CONFIGURATION.session_api_key is not None:
            keys = list(_keys_in(scope))
            if keys and not key_throttle.admits(address_of(scope), keys):
                if scope["type"] == "websocket":
                    log_socket_refused(scope, code=TOO_MUCH)
                wait = (b"retry-after", str(int(WINDOW_S)).encode())
                await refuse(scope, receive, send, Refusal(429, CODE, DETAIL), headers=[wait])
                return
        await self.application(scope, receive, send)


def address_of(scope: Any) -> str:
    """Return the address of the client; empty if it has none, as at a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


def is_secure(scope: Any, headers: Mapping[str, str]) -> bool:
    """Return whether the client's way to the server is encrypted, as far as its proxy says."""
    named = settings.SECURE_PROXY_SSL_HEADER
    # The setting names the header as WSGI does.
    if named is not None:
        name = named[0].removeprefix("HTTP_").replace("_", "-").lower()
        if name in headers:
            # Of several proxies the first has seen the client; Django reads it in the same way.
            return headers[name].split(",")[0].strip() == named[1]
    return bool(scope.get("scheme") == "https")


def may_try(scope: Any, key: str) -> bool:
    """Return whether the client of a socket may authenticate by this key; a wrong one is counted."""
    return settings.CONFIGURATION.session_api_key is None or key_throttle.admits(address_of(scope), [key])


def _keys_in(scope: Any) -> Iterator[str]:
    yield from credentials_of(headers_of(scope)).keys
    query: bytes = scope["query_string"]
    if b"session_api_key=" in query or b"%" in query:  # `%` may encode a part of the name
        given = parse_qs(query.decode("latin-1")).get("session_api_key", [])
        yield from {*given[:1], *given[-1:]}  # some doors read the first, others the last


def _may_be_server_key(key: str) -> bool:
    """Return whether a key may be a guess; tokens and keys of conversations are not, if those look different.

    Some clients send `null` if they have no key.
    """
    expected = settings.CONFIGURATION.session_api_key or ""
    others = [prefix for prefix in (TOKEN_PREFIX, CONVERSATION_KEY) if not expected.startswith(prefix)]
    return key not in ("null", "undefined") and not key.startswith(tuple(others))
