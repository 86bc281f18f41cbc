"""The REST framework's classes over `sessions_app.identity.authentication`."""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from typing import cast

from django.contrib.auth.models import User
from django.http import QueryDict
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from sessions_app.identity.authentication import credentials_of, holder_of_key, lets_everybody_in


class AuthType(StrEnum):
    """By what a request came in (spec V0 §0.3); `request.auth` holds it."""

    KEY = "key"
    BEARER = "bearer"


class KeyAuthentication(BaseAuthentication):
    """The server's key or a token, in X-Session-API-Key or Authorization: Bearer."""

    def authenticate(self, request: Request) -> tuple[User, AuthType] | None:
        """Return who holds the key; None without one, and where everybody is let in anyway."""
        credentials = credentials_of({name.lower(): value for name, value in request.headers.items()})
        if not credentials.keys:
            return None
        for key, auth_type in ((credentials.api_key, AuthType.KEY), (credentials.bearer, AuthType.BEARER)):
            if key and (holder := holder_of_key([key])):
                return holder, auth_type
        if not lets_everybody_in():
            # A login beside a wrong key does not count: the client means the key.
            raise AuthenticationFailed("This key is unknown or was revoked.")
        return None

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge that makes a refusal a 401."""
        return "Bearer"


class LoginAuthentication(SessionAuthentication):
    """A login's cookie with its CSRF token; in local mode all clients, whose origin is already checked."""

    def enforce_csrf(self, request: Request) -> None:
        """Ask for the token in its header, except where no cookie gives any right."""
        if not lets_everybody_in():
            # To look for it in a form would read the body before the view does.
            bare = copy(request._request)
            bare.POST = QueryDict()
            super().enforce_csrf(cast(Request, bare))
