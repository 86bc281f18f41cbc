"""HTTP requests: each runs in one thread, from its first middleware to its view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any, NamedTuple, Self, cast

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
from convserver.api.direct.outcomes import FAILURE
from convserver.api.unavailable import CROWDED, TOO_MANY, refuse
from convserver.passwords import queue
from convserver.serving import request_log
from convserver.serving.admission import (
    ABROAD_THREADS,
    THREADS,
    WAIT_S,
    Lane,
    Limit,
    Permit,
    ShareUsedUp,
    admission,
)
from convserver.serving.clients import EVERYBODY, client_of
from convserver.serving.live_responses import LiveResponse
from convserver.serving.measuring import name_route

Answer = Callable[[HttpRequest, Permit | None], Awaitable[HttpResponseBase]]


class OneThreadHandler(ASGIHandler):
    """Django's handler, but with one switch to a thread for each request instead of one for each middleware.

    The framework would also start a thread, with a database connection, for every request. These threads
    and their connections stay.
    """

    def __init__(self, name: str = "http", *, are_shared: bool = True, urlconf: str | None = None) -> None:
        """`are_shared`: whether users take turns for its threads; what is not shared waits for nobody.

        `urlconf` names the addresses that it answers; None means all.
        """
        self._name = name
        self._are_shared = are_shared
        self._urlconf = urlconf
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        """Make the middleware chain synchronous, and run it as a whole in one of this handler's threads."""
        super().load_middleware(is_async=False)
        chain: Any = self._middleware_chain  # type: ignore[has-type]

        # Three pools: threads that wait for foreign hosts, or that write refusals while all others are
        # busy, must not be those that other requests wait for.
        def in_threads(count: int, name: str) -> Answer:
            return sync_to_async(
                lambda request, place: _at(place, lambda: _in_thread(chain, request)),
                thread_sensitive=False,
                executor=ThreadPoolExecutor(count, thread_name_prefix=f"{self._name}{name}"),
            )

        self._in_thread = in_threads(THREADS, "")
        self._in_thread_abroad = in_threads(ABROAD_THREADS, "-abroad")
        # Requests that waited for a thread in vain are answered in these.
        refusal_threads = 2
        self._in_thread_refused = in_threads(refusal_threads, "-refused")
        self._middleware_chain = self._answered

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request; the framework's other work needs no thread."""
        # Without the framework's context, which makes a thread for each request.
        await self.handle(scope, receive, send)

    def create_request(self, scope: Any, body_file: Any) -> Any:
        """Give the request a body of its own.

        The framework closes the file when a client leaves, which a thread that has begun may still read.
        """
        return super().create_request(scope, BytesIO(body_file.read()))

    async def send_response(self, response: HttpResponseBase, send: Any) -> None:
        """Send an answer; what a live one sends comes from the event loop, and no thread waits for it."""
        whole = await response.send(send) if isinstance(response, LiveResponse) else response
        if whole is not None:
            await super().send_response(whole, send)

    async def _answered(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a request in a thread, for which it waits first."""
        # Its body has come by then: no request waits behind a slow upload.
        if self._urlconf is not None:
            request.urlconf = self._urlconf
        if not self._are_shared:
            return await self._in_thread(request, None)
        scope: Any = getattr(request, "scope", {})
        if (failure := scope.get(FAILURE)) is not None:
            refuse(request, failure)
            return await self._in_thread_refused(request, None)
        route = _Route.of(request)
        name_route(scope, route.view_name)
        # A form is only shown by a safe method; the password is computed when it is sent.
        if request.method in SAFE_METHODS or route.view_name not in queue.VIEWS:
            return await self._placed(request, route, [])
        async with queue.password_queue().slot(request, route.view_name) as slot:
            return await self._placed(request, route, slot)

    async def _placed(self, request: HttpRequest, route: _Route, held: list[Limit]) -> HttpResponseBase:
        """Answer a request in its place, which keeps what is held already."""
        try:
            place = await _place(request, route)
            place.keep(held)
        except ShareUsedUp:
            refuse(request, TOO_MANY)
            return await self._in_thread_refused(request, None)
        except TimeoutError:
            refuse(request, CROWDED)
            return await self._in_thread_refused(request, None)
        answered = self._in_thread_abroad if route.lane is Lane.ABROAD else self._in_thread
        try:
            return await answered(request, place)
        finally:
            if not place.is_used:  # the client left before a thread took the request
                place.leave()


class _Route(NamedTuple):
    """Where the address of a request leads."""

    conversation_id: str | None  # in its normal spelling, if the address names one
    lane: Lane
    view_name: str = ""

    @classmethod
    def of(cls, request: HttpRequest) -> Self:
        try:
            match = resolve(request.path_info)
        except Http404:
            return cls(None, Lane.ORDINARY)
        try:
            named = match.kwargs.get("conversation_id")
            conversation_id = None if named is None else normal_id(str(named))
        except InvalidConversationId:
            conversation_id = None
        return cls(conversation_id, _lane_of(match.func, request.method or ""), match.view_name)


def _lane_of(view: Any, method: str) -> Lane:
    """Return the lane of a view, or of the method of a viewset that answers the request."""
    viewset = getattr(view, "cls", view)
    action = getattr(viewset, getattr(view, "actions", {}).get(method.lower(), method.lower()), None)
    lane: Lane = getattr(action, "lane", getattr(viewset, "lane", Lane.ORDINARY))
    return lane


async def _place(request: HttpRequest, route: _Route) -> Permit:
    """Wait for the request's place. Raise TimeoutError, where it may not wait for as long as it takes."""
    client = await client_of(request)
    # Without accounts there is one user, whose requests wait for each other as long as it takes.
    within_s = None if client == EVERYBODY else WAIT_S
    match route.lane:
        case Lane.ABROAD:
            return await admission().place_abroad(within_s=within_s, client=client)
        case Lane.SEARCH:
            return await admission().searching_place(within_s=within_s, client=client)
        case _ if request.method in SAFE_METHODS:
            return await admission().reading_place(within_s=within_s, client=client)
        case Lane.BATCH:
            return await admission().batch_place(within_s=settings.LOCK_TIMEOUT_S, client=client)
        case Lane.ORDINARY:
            within_s = settings.LOCK_TIMEOUT_S
            return await admission().place(route.conversation_id, within_s=within_s, client=client)


def _at(place: Permit | None, answer: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Answer, and give the place up at the end, also if the client has left."""
    if place is None:
        return answer()
    place.is_used = True
    try:
        return answer()
    finally:
        place.leave_from_thread()


def _in_thread(chain: Any, request: HttpRequest) -> HttpResponseBase:
    """Run the chain; afterwards return the connection to the pool, or close it if it is broken."""
    try:
        with request_log.present(request.META.get("REMOTE_ADDR") or None):
            response = cast(HttpResponse, chain(request))
            if response.status_code >= 400:  # the framework would start a thread for this line
                words = ("%s: %s", response.reason_phrase, request.path)
                log_response(*words, response=response, request=request)
            return response
    finally:
        connection.close_if_unusable_or_obsolete()
