"""One answer for all doors when the database fails under a view, or when a request is not let in to one."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from conversations.exceptions import StoreUnavailable
from convserver.api.errors import PASSING, unavailable

CROWDED = "Too many changes are waiting. Try again in a few seconds."
_REFUSED = "is_crowded_out"
"""The attribute of a request that no view is to see."""


class DatabaseFailuresMiddleware:
    """Turns what the database raises in a view into 503; the doors' own tables do not know these errors."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on, unless it was refused: all other middleware has seen it then."""
        if getattr(request, _REFUSED, False):
            return unavailable(request, StoreUnavailable(CROWDED))
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """Answer 503 if it was the database."""
        return unavailable(request, error) if isinstance(error, PASSING) else None


def refuse(request: HttpRequest) -> None:
    """Let the request be answered with 503 instead of by a view: it has waited for too long to be let in."""
    setattr(request, _REFUSED, True)
