"""One answer for all doors when the database fails under a view."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from convserver.api.errors import UNAVAILABLE, unavailable


class DatabaseFailuresMiddleware:
    """Turns what the database raises in a view into 503; the doors' own tables do not know these errors."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on."""
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        """Answer 503 if it was the database."""
        return unavailable(request, error) if isinstance(error, UNAVAILABLE) else None
