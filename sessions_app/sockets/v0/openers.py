"""The client that opened a Socket.IO connection; all later requests of the connection must be its own.

The id of a connection proves nothing: it is part of addresses, which proxies log and people copy.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from http.cookies import CookieError, SimpleCookie
from typing import Any, Self
from urllib.parse import parse_qs

from sessions_app.identity.authentication import (
    Credentials,
    credentials_of,
    headers_of,
    lets_everybody_in,
)
from sessions_app.identity.key_holders import get_key_holders, is_same
from sessions_app.identity.principals import Principal, Refused
from sessions_app.sockets.arrivals import Arrivals

PROOF_COOKIE = "convserver_polling"
"""Proves that a request without credentials is from the client that opened the connection. The Python
client sends its headers only with the first request, but cookies with each."""
_KEY = "convserver.opener"


def credentials_in(scope: Any) -> Credentials:
    """Return the credentials in the headers of a request, and the key in its address (spec V0 §2.2)."""
    credentials = credentials_of(headers_of(scope))
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    key = query.get("session_api_key", [""])[0]
    if credentials.api_key is None and key not in ("", "null", "undefined"):
        return replace(credentials, api_key=key)
    return credentials


@dataclass(kw_only=True, slots=True)
class Opener:
    credentials: Credentials
    proof: str
    principal: Principal | None = None
    """Its user, once it has joined; kept after a disconnect, so that it reads no more."""
    arrivals: Arrivals = field(default_factory=Arrivals)

    @classmethod
    def note(cls, scope: Any) -> tuple[Self, dict[str, Any]]:
        """Return the client of a first request, and the request's scope with it."""
        opener = cls(credentials=credentials_in(scope), proof=secrets.token_urlsafe(32))
        return opener, {**scope, _KEY: opener}

    @classmethod
    def of(cls, environ: Any) -> Self:
        """Return the client of a connection by the environ of its first request."""
        opener: Self = environ["asgi.scope"][_KEY]
        return opener

    async def has_sent(self, scope: Any) -> bool:
        """Return whether a later request is this client's, and the client still has access."""
        given = credentials_in(scope)
        if given != self.credentials and not self._has_proof(given, scope) and not await self._holds(given):
            return False
        try:
            if self.principal is not None:
                await self.principal.check()
        except Refused:
            return False
        return True

    def _has_proof(self, given: Credentials, scope: Any) -> bool:
        if given != Credentials():  # if it sends any, they must be right
            return False
        try:
            morsel = SimpleCookie(headers_of(scope).get("cookie", "")).get(PROOF_COOKIE)
        except CookieError:
            return False
        return morsel is not None and hmac.compare_digest(morsel.value.encode(), self.proof.encode())

    async def _holds(self, given: Credentials) -> bool:
        """Return whether other credentials are those of the same client."""
        find = get_key_holders().find
        user = await find(given)
        if not user.is_authenticated:
            return False
        own = self.principal.user if self.principal is not None else await find(self.credentials)
        return is_same(user, own)

    def giving_proof(self, scope: Any, send: Callable[[Any], Awaitable[None]]) -> Any:
        """Return a `send` that sets the cookie, for a client that may not repeat its headers."""
        if (
            scope["type"] != "http"
            or lets_everybody_in()
            or credentials_of(headers_of(scope)) == Credentials()
        ):
            return send
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        cookie = f"{PROOF_COOKIE}={self.proof}; Path=/socket.io/; HttpOnly; SameSite=Strict{secure}"

        async def send_with_cookie(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                headers = [*message["headers"], (b"set-cookie", cookie.encode())]
                message = {**message, "headers": headers}
            await send(message)

        return send_with_cookie
