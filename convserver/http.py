"""HTTP requests: each runs in one thread, from its first middleware to its view."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.utils.log import log_response
from rest_framework.permissions import SAFE_METHODS

from conversations.exceptions import InvalidConversationId
from conversations.models import normal_id
from convserver import request_log
from convserver.admission import THREADS, Place, admission
from convserver.api.unavailable import refuse


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
        self._in_thread = sync_to_async(
            lambda request, place: _at(place, lambda: _in_thread(chain, request)),
            thread_sensitive=False,
            executor=pool,
        )
        self._middleware_chain = self._answered

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request; the framework's other work needs no thread."""
        await self.handle(scope, receive, send)

    async def _answered(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a request in a thread; one that may change something waits for its place first.

        Its body has come by then: nobody waits behind a slow upload.
        """
        if request.method in SAFE_METHODS:
            return await self._in_thread(request, None)
        try:
            place = await admission().place(_conversation_of(request), within_s=settings.LOCK_TIMEOUT_S)
        except TimeoutError:
            refuse(request)
            return await self._in_thread(request, None)
        try:
            return await self._in_thread(request, place)
        finally:
            if not place.is_used:
                place.leave()


def _conversation_of(request: HttpRequest) -> str | None:
    """Return the id of the conversation that the address names, in its normal spelling, if it names one."""
    try:
        named = resolve(request.path_info).kwargs.get("conversation_id")
        return None if named is None else normal_id(str(named))
    except (Http404, InvalidConversationId):
        return None


def _at(place: Place | None, answer: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Answer, and give the place up at the end, whether or not anybody waits for the answer still."""
    if place is None:
        return answer()
    place.use()
    try:
        return answer()
    finally:
        place.leave_from_thread()


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
