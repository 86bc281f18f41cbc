"""Log lines about logins, logouts and failed logins."""

from __future__ import annotations

import logging
from threading import Event
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.http import HttpRequest

from conversations.server_log import log_act, log_refusal
from convserver.configuration import LOOPBACK_ADDRESSES

logger = logging.getLogger(__name__)

_has_warned = Event()


def follow() -> None:
    """Write a line for each login, logout and failed login from now on."""
    # An id each, so that a second call connects nothing twice.
    user_logged_in.connect(_logged_in, dispatch_uid="convserver.passwords.sign_ins")
    user_logged_out.connect(_logged_out, dispatch_uid="convserver.passwords.sign_ins")
    user_login_failed.connect(_login_failed, dispatch_uid="convserver.passwords.sign_ins")


def _logged_in(request: HttpRequest | None, user: Any, **others: object) -> None:
    way = "key" if getattr(user, "backend", "").endswith("ServerKeyBackend") else "password"
    log_act("Login", user=user.pk, by=way, address=_address_of(request))


def _logged_out(request: HttpRequest | None, user: Any, **others: object) -> None:
    if user is not None:
        log_act("Logout", user=user.pk, address=_address_of(request))


def _login_failed(credentials: dict[str, Any], request: HttpRequest | None = None, **others: object) -> None:
    _warn_of_unknown_proxy(request)
    way, user = "key" if "server_key" in credentials else "password", None
    # The name is not logged, because some users type their password there.
    name = credentials.get("username")
    if way == "password" and isinstance(name, str) and "\0" not in name:
        user = get_user_model().objects.filter(username=name).values_list("pk", flat=True).first()
    log_refusal("Login failed", user=user, by=way, address=_address_of(request))


def _warn_of_unknown_proxy(request: HttpRequest | None) -> None:
    """Warn once if a proxy on this machine seems to be in front, and is not trusted to name the client."""
    if request is None or _has_warned.is_set() or "HTTP_X_FORWARDED_FOR" not in request.META:
        return
    if _address_of(request) in LOOPBACK_ADDRESSES:
        _has_warned.set()
        logger.warning(
            "A log-in came with X-Forwarded-For from this machine, but CONVSERVER_TRUSTED_PROXIES does not "
            "list it: all clients of a proxy here count as one address. List 127.0.0.1 there if a proxy is "
            "yours."
        )


def _address_of(request: HttpRequest | None) -> str | None:
    return (request.META.get("REMOTE_ADDR") or None) if request is not None else None
