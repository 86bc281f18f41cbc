"""Logins with the server's key, for browsers: they end when the key changes.

Sessions that are stored name this module by its path.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from sessions_app.identity.authentication import is_server_key, operator

SALT = "convserver session of the server key"


class ServerKeyBackend(BaseBackend):
    """Authenticates a client with the server's key as the user of the key."""

    def authenticate(  # type: ignore[override]  # a login's credentials are named by its backend
        self, request: HttpRequest | None, *, server_key: str
    ) -> User | None:
        """Return the user of the key; None for any other key."""
        return _bound(operator()) if is_server_key(server_key) else None

    def get_user(self, user_id: int) -> User | None:
        """Return the user of a session that this backend has opened, while the key belongs to them."""
        if settings.CONFIGURATION.session_api_key is None:
            return None
        user = operator()
        return _bound(user) if user is not None and user.pk == user_id else None


def _bound(user: User | None) -> User | None:
    """Make the key part of the session's hash, so that another key ends the session.

    The session has a keyed digest of it, which the framework compares in constant time.
    """
    if user is None:
        return None
    text = f"{user.password} {settings.CONFIGURATION.session_api_key}"

    def digest(secret: str) -> str:
        return salted_hmac(SALT, text, secret=secret, algorithm="sha256").hexdigest()

    def earlier() -> Iterator[str]:
        return map(digest, settings.SECRET_KEY_FALLBACKS)

    user.get_session_auth_hash = lambda: digest(settings.SECRET_KEY)  # type: ignore[method-assign]
    user.get_session_auth_fallback_hash = earlier  # type: ignore[method-assign]
    return user
