"""The client of a request, found before its view runs, so that users share threads.

It decides no permission.
"""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import sha256

from django.conf import settings
from django.core.cache.backends.locmem import LocMemCache
from django.http import HttpRequest

from conversations.engines import failures
from sessions_app import astore
from sessions_app.identity.addresses import subscriber
from sessions_app.identity.authentication import Credentials, credentials_of, holder_of
from sessions_app.identity.conversation_keys import opened_by

KNOWN_S = 60  # credentials are looked up again after this long
KNOWN_MAX = 10_000

_known = LocMemCache("clients", {"TIMEOUT": KNOWN_S, "OPTIONS": {"MAX_ENTRIES": KNOWN_MAX}})

EVERYBODY = 0  # the client of every request where there are no accounts


_FOUND = "_client"  # the attribute of a request that says whose it is


def found_client(request: HttpRequest) -> Hashable:
    """Return what `client_of` has found; None before it was asked."""
    return getattr(request, _FOUND, None)


async def client_of(request: HttpRequest) -> Hashable:
    """Return the key of the user whose credentials these are; the address of a client without valid ones."""
    credentials = credentials_of({name.lower(): value for name, value in request.headers.items()})
    client = await holder_of_share(credentials, request.META.get("REMOTE_ADDR") or "")
    setattr(request, _FOUND, client)
    return client


async def holder_of_share(credentials: Credentials, address: str) -> int | str:
    """Return what `client_of` does for a request with these credentials from this address."""
    if settings.CONFIGURATION.auth == "local":
        return EVERYBODY
    address = subscriber(address)
    given = [*credentials.keys, credentials.session_key or ""]
    if not any(given):
        return address
    # Hashed, so that the memory of the process has no table of credentials.
    name = sha256("\0".join(given).encode(errors="surrogatepass")).hexdigest()
    found: int | None = _known.get(name)
    if found is None:
        try:
            found = await astore.call(_user_of, credentials)
        except failures.FAILURES:
            return address  # a share by address is fair enough; the view answers what has failed
        # Unknown credentials, too: a client that repeats them costs one query a minute.
        _known.set(name, found)
    return found or address


def _user_of(credentials: Credentials) -> int:
    """Return the key of their user; 0 for nobody."""
    for key in credentials.keys:
        if (conversation := opened_by(key)) is not None:
            return conversation.owner_id
    user = holder_of(credentials)
    return 0 if user is None else user.pk
