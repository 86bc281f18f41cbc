"""HTTP requests: each runs in one thread, from its first middleware to its view."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.log import log_response

from convserver import request_log

THREADS = 32
"""At most this many requests are in views at a time; the others wait for a thread."""


class OneThreadHandler(ASGIHandler):
    """Django's handler, but with one switch to a thread for each request instead of one for each middleware.

    The framework would also start a thread, with a database connection, for every request. These threads
    and their connections stay.
    """

    def __init__(self, name: str = "http") -> None:
        self._name = name
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        """Make the middleware chain synchronous, and run it as a whole in one of this handler's threads."""
        super().load_middleware(is_async=False)
        chain: Any = self._middleware_chain  # type: ignore[has-type]
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix=self._name)
        self._middleware_chain = sync_to_async(
            lambda request: _in_thread(chain, request), thread_sensitive=False, executor=pool
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request; the framework's other work needs no thread."""
        await self.handle(scope, receive, send)


def _in_thread(chain: Any, request: HttpRequest) -> HttpResponseBase:
    """Run the chain; afterwards return the connection to the pool, or close it if it is broken."""
    try:
        with request_log.present():
            response = cast(HttpResponse, chain(request))
            if response.status_code >= 400:  # the framework would start a thread for this line
                words = ("%s: %s", response.reason_phrase, request.path)
                log_response(*words, response=response, request=request)
            return response
    finally:
        connection.close_if_unusable_or_obsolete()
