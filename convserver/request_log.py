"""What the server's log says of HTTP requests: an id on each line, and a line for each that was refused."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.functional import LazyObject, empty

from conversations.server_log import log_minor_refusal, log_refusal, printable

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
RIGHTS_MISSING = frozenset({401, 403, 429})
"""Statuses that are worth a warning whatever was asked: who comes may not, or comes too often."""
CODE_SHOWN = 50
PROBES = frozenset({"/health", "/ready"})
"""They come all the time; what changes in the health of the server has a line of its own."""


class _Present(threading.local):
    """The request that this thread is at.

    A request is handled in one thread from its first middleware to its view. A context variable would also
    go with every task that the request happens to begin on the event loop, such as the writer of
    everybody's appends, and stay with it.
    """

    request_id: str | None = None


_present = _Present()


def current_id() -> str | None:
    """Return the id of the request that this thread is at, if it is at one."""
    return _present.request_id


@contextmanager
def present() -> Iterator[None]:
    """Let the lines that this thread writes have the id of a new request."""
    _present.request_id = uuid4().hex[:12]
    try:
        yield
    finally:
        _present.request_id = None


class RefusalsMiddleware:
    """Write a line for each request that was refused: a 4xx of whatever door."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer the request."""
        response = self.get_response(request)
        if is_refusal(response.status_code):
            match = request.resolver_match
            kwargs = match.kwargs if match is not None else {}
            log = log_minor_refusal if _is_minor(request, response.status_code) else log_refusal
            log(
                "Request refused",
                status=response.status_code,
                code=_code(response),
                method=request.method,
                path=printable(request.path),
                conversation=_named(kwargs.get("conversation_id")),
                user=_known_user(request),
                address=request.META.get("REMOTE_ADDR") or None,
            )
        return response


def is_refusal(status: int) -> bool:
    """Say whether the middleware writes a line about an answer with this status."""
    return 400 <= status < 500


def _is_minor(request: HttpRequest, status: int) -> bool:
    """Say whether nobody wants to look into it: an icon that is not there is asked for every day."""
    return request.method in SAFE_METHODS and status not in RIGHTS_MISSING


class ToldOnce(logging.Filter):
    """Leaves out what Django writes of an answer that the middleware or the health has told."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is to be written."""
        request = getattr(record, "request", None)
        status = getattr(record, "status_code", None)
        if not (isinstance(request, HttpRequest) and isinstance(status, int)):
            return True
        return not (is_refusal(status) or (status == 503 and request.path in PROBES))


def _named(conversation_id: object) -> str | None:
    """Return the id that the path names, which anybody may have made up."""
    return None if conversation_id is None else printable(str(conversation_id))


def _code(response: HttpResponseBase) -> str | None:
    """Return the word by which the native door says what was wrong."""
    body: Any = getattr(response, "data", None)
    code = body.get("code") if isinstance(body, dict) else None
    return printable(code, limit=CODE_SHOWN) if isinstance(code, str) else None


def _known_user(request: HttpRequest) -> int | None:
    """Return the user's key as far as somebody has asked who it is: a line must not need the database."""
    user = getattr(request, "user", None)
    if isinstance(user, LazyObject) and user._wrapped is empty:
        return None
    return getattr(user, "pk", None)
