"""Authentication, by the server's key, a token, a login or as the local user; and the check of origins.

Every door uses this. A visitor without valid credentials is anonymous (AnonymousUser).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port, validate_host
from django.utils.functional import SimpleLazyObject

from conversations.access import Visitor
from conversations.models import Version
from sessions_app.identity import scopes
from sessions_app.identity.addresses import LOOPBACK_NAMES
from sessions_app.models import ApiToken
from sessions_app.refusals import Refusal, log_socket_refused, refuse

LOCAL_USERNAME = "local"


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """The credentials of a request or a handshake; some sockets have them in their address."""

    api_key: str | None = None
    """The header X-Session-API-Key: the server's key, or a token."""
    bearer: str | None = None
    """The token of the header Authorization: Bearer."""
    session_key: str | None = None
    """The cookie of a login."""

    @property
    def keys(self) -> list[str]:
        return [key for key in (self.api_key, self.bearer) if key]


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers by lower-case name; of a repeated header the last."""
    raw: Any = scope.get("headers", ())
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}


def credentials_of(headers: dict[str, str]) -> Credentials:
    """Read the credentials in the headers (lower-case names)."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return Credentials(
        api_key=headers.get("x-session-api-key") or None,
        bearer=token.strip() or None if scheme.lower() == "bearer" else None,
        session_key=_cookie(headers.get("cookie", ""), settings.SESSION_COOKIE_NAME),
    )


def _cookie(header: str, name: str) -> str | None:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return None
    # Session keys are letters and digits; some databases refuse a NUL.
    return morsel.value if morsel and morsel.value.isalnum() else None


def visitor(credentials: Credentials) -> Visitor:
    """Return the user with these credentials; in local mode without a server key, the local user."""
    # A client that sends a key means to be its holder: with a wrong one it is anonymous, even with a login.
    if credentials.keys and not lets_everybody_in():
        return holder_of_key(credentials.keys) or AnonymousUser()
    return holder_of_key(credentials.keys) or _logged_in(credentials.session_key) or everybody()


def lets_in_still(credentials: Credentials, user_id: int) -> bool:
    """Return whether these credentials, which have authenticated this user before, are still valid."""
    if lets_everybody_in():
        return True
    user = holder_of(credentials)
    return user is not None and user.pk == user_id


def holder_of(credentials: Credentials) -> User | None:
    """Return the user of these credentials, without recording their use."""
    if credentials.keys:
        return holder_of_key(credentials.keys, is_used=False)
    return _logged_in(credentials.session_key)


def holder_of_key(keys: list[str], *, is_used: bool = True) -> User | None:
    """Return the user of the first valid key: the operator for the server's key, its owner for a token."""
    for key in keys:
        if is_server_key(key):
            return operator()
        token = ApiToken.objects.valid().matching(key).select_related("user").first()
        if token is not None:
            if is_used:
                token.record_use()
            return scopes.holder_of(token)
    return None


def is_server_key(key: str) -> bool:
    expected = settings.CONFIGURATION.session_api_key
    return expected is not None and hmac.compare_digest(key.encode(errors="surrogatepass"), expected.encode())


def everybody() -> Visitor:
    """Return the local user if no credentials are required, otherwise the anonymous user."""
    return local_user() if lets_everybody_in() else AnonymousUser()


def lets_everybody_in() -> bool:
    """Return whether every client that reaches the server is the local user."""
    return settings.CONFIGURATION.auth == "local" and settings.CONFIGURATION.session_api_key is None


def is_keyed(version: str) -> bool:
    """Return whether clients get a key of each conversation of this wire: V1, if keys are required."""
    return version == Version.V1 and not lets_everybody_in()


def operator() -> User | None:
    """Return the user of the server's key: the local user, or the first superuser in accounts mode."""
    if settings.CONFIGURATION.auth == "local":
        return local_user()
    return User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first()


def local_user() -> User:
    """Return the one user of local mode, a superuser without a password."""
    # A function, so that the hash is computed only where the row is created.
    defaults = {"is_superuser": True, "is_staff": True, "password": lambda: make_password(None)}
    return User.objects.get_or_create(username=LOCAL_USERNAME, defaults=defaults)[0]


def _logged_in(session_key: str | None) -> User | None:
    if not session_key:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    # After a rotation of the secret key, a page would renew the login's cookie; no cookie can be set here.
    request.session.cycle_key = lambda: None  # type: ignore[method-assign]
    user = get_user(request)
    return user if isinstance(user, User) else None


class LocalUserMiddleware:
    """Make a page's visitor the local user if no credentials are required; query only when needed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if lets_everybody_in():
            from_login = request.user
            request.user = SimpleLazyObject(
                lambda: from_login if from_login.is_authenticated else local_user()
            )  # type: ignore[assignment]
        return self.get_response(request)


class OwnOriginOnly:
    """The outermost application: accepts requests that are addressed to this server, from its own pages.

    A foreign host name is DNS rebinding; a foreign Origin is another site's page in the visitor's browser.
    Applies to HTTP, polling and WebSocket alike.
    """

    def __init__(self, application: ASGI3Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] in ("http", "websocket") and (refusal := _refusal(scope)):
            if scope["type"] == "websocket":
                log_socket_refused(scope, code=refusal.code)
            await refuse(scope, receive, send, refusal, template="refused.html")
        else:
            await self.application(scope, receive, send)


def _refusal(scope: Scope) -> Refusal | None:
    headers = headers_of(scope)
    host = headers.get("host", "")
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        detail = (
            f"{host!r} is not a name of this server. Use one that CONVSERVER_ALLOWED_HOSTS lists, "
            "or add this one to it and restart the server."
        )
        return Refusal(403, "unknown_host", detail)
    origin = headers.get("origin")
    if origin in settings.CONFIGURATION.permitted_origins or _is_navigation(scope, headers):
        return None
    if origin is not None and not _is_own(origin, scope, host):
        detail = f"Pages of {origin} may not use this server: PERMITTED_CORS_ORIGINS lists who may."
        return Refusal(403, "foreign_origin", detail)
    # Browsers leave out the Origin of some requests, such as those for images, but not this header.
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return Refusal(403, "foreign_origin", "Pages of other sites may not use this server.")
    return None


def _is_own(origin: str, scope: Scope, host: str) -> bool:
    """Return whether an origin is that of this server's own pages: its host and port, and its scheme."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    # Anyone in the visitor's network can answer as a page without TLS.
    schemes = ("https",) if _is_behind_tls(scope, host) else ("https", "http")
    return parts.netloc.lower() == host.lower() and parts.scheme in schemes


def _is_behind_tls(scope: Scope, host: str) -> bool:
    """Return whether this server's pages come over TLS, so that no third party can have written them.

    A proxy may say so. With accounts it is certain except for this machine's own names, since cookies are
    sent over HTTPS only. Otherwise both are possible behind a silent proxy.
    """
    is_said = scope["type"] in ("http", "websocket") and scope.get("scheme") in ("https", "wss")
    is_local = validate_host(split_domain_port(host)[0], LOOPBACK_NAMES)
    return is_said or (settings.CONFIGURATION.auth == "accounts" and not is_local)


def _is_navigation(scope: Scope, headers: dict[str, str]) -> bool:
    """Return whether a visitor has followed a link to this address, which only reads."""
    return (
        scope["type"] == "http"
        and scope["method"] in ("GET", "HEAD")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
