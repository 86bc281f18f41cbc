"""Log lines about HTTP requests: an id on each line, and a line for each refused request."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.functional import LazyObject, empty

from conversations.server_log import log_minor_refusal, log_refusal, printable

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
RIGHTS_MISSING = frozenset({401, 403, 429})
"""Statuses that are always warnings: the client lacks permission, or asks too often."""
# The attribute of an answer that refuses nothing, whatever its status.
_LEFT_OUT = "is_left_out_of_log"
# They come all the time; a change of the server's health has a line of its own.
PROBES = frozenset({"/health", "/ready"})


# A request is handled in one thread from its first middleware to its view. A context variable would also be
# inherited by every task that the request starts on the event loop, such as the writer of all users' appends,
# and would stay with it.
class _Present(threading.local):
    """The request of this thread."""

    request_id: str | None = None
    address: str | None = None
    code: str | None = None


_present = _Present()


def current_id() -> str | None:
    """Return the id of this thread's request, if it has one."""
    return _present.request_id


def current_address() -> str | None:
    """Return the address that this thread's request came from, if it has one."""
    return _present.address


def name_code(code: str) -> None:
    """Give the line about this thread's request a code where its answer has no `code`, as that of a page."""
    _present.code = code


def leave_out(response: HttpResponseBase) -> None:
    """Write no line about this answer: its protocol says with a 4xx that the client has to wait."""
    setattr(response, _LEFT_OUT, True)


@contextmanager
def present(address: str | None = None) -> Iterator[None]:
    """Give the lines that this thread writes the id of a new request, and those about actions its address."""
    _present.request_id, _present.address = uuid4().hex[:12], address
    try:
        yield
    finally:
        _present.request_id = _present.address = _present.code = None


class RefusalsMiddleware:
    """Write a line for each refused request: a 4xx of any door."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if is_refusal(response.status_code) and not getattr(response, _LEFT_OUT, False):
            match = request.resolver_match
            kwargs = match.kwargs if match is not None else {}
            # A missing icon is requested every day and deserves no attention.
            is_minor = request.method in SAFE_METHODS and response.status_code not in RIGHTS_MISSING
            log = log_minor_refusal if is_minor else log_refusal
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
    """Return whether the middleware writes a line about an answer with this status."""
    return 400 <= status < 500


class ToldOnce(logging.Filter):
    """Drops Django's lines about answers that the middleware or the health probe has logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        status = getattr(record, "status_code", None)
        if not (isinstance(request, HttpRequest) and isinstance(status, int)):
            return True
        return not (is_refusal(status) or (status == 503 and request.path in PROBES))


def _named(conversation_id: object) -> str | None:
    """Return the id in the path, which anybody may have invented."""
    return None if conversation_id is None else printable(str(conversation_id))


def _code(response: HttpResponseBase) -> str | None:
    """Return the native door's code of the error, or the one that a page has named."""
    body = _body(response)
    code = body.get("code", _present.code) if isinstance(body, dict) else _present.code
    code_shown = 50
    return printable(code, limit=code_shown) if isinstance(code, str) else None


def _body(response: HttpResponseBase) -> object:
    """Return the JSON of an answer, also of one that a view has written as text; None for any other."""
    if (data := getattr(response, "data", None)) is not None:
        return data
    is_json = response.headers.get("Content-Type", "").startswith("application/json")
    return json.loads(response.content) if is_json and isinstance(response, HttpResponse) else None


def _known_user(request: HttpRequest) -> int | None:
    """Return the user's key if the request has loaded its user."""
    # Not loaded here: a log line must not need the database.
    user = getattr(request, "user", None)
    if isinstance(user, LazyObject) and user._wrapped is empty:
        return None
    return getattr(user, "pk", None)
