"""One answer for all doors when the database fails under a view, or when a request is not let in to one."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from conversations.exceptions import StoreUnavailable
from convserver.api.errors import PASSING, too_many, unavailable

CROWDED = "Too many changes are waiting. Try again in a few seconds."
TOO_MANY = "Too many of your requests are waiting. Wait for their answers, then try again."
_REFUSED = "why_refused"
"""The attribute of a request that no view is to see."""


class DatabaseFailuresMiddleware:
    """Turns what the database raises in a view into 503; the doors' own tables do not know these errors."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on, unless it was refused: all other middleware has seen it then."""
        match getattr(request, _REFUSED, None):
            case None:
                return self.get_response(request)
            case str(detail) if detail == TOO_MANY:
                return too_many(request, detail)
            case Exception() as error:
                return unavailable(request, error)
            case detail:
                return unavailable(request, StoreUnavailable(detail))

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """Answer 503 if it was the database."""
        return unavailable(request, error) if isinstance(error, PASSING) else None


def refuse(request: HttpRequest, why: str | Exception) -> None:
    """Answer the request with 503, or 429 for TOO_MANY, instead of by a view."""
    setattr(request, _REFUSED, why)
