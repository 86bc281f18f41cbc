"""Exceptions to statuses and bodies: one table per wire."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.exceptions import PermissionDenied, TooManyFieldsSent
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.loader import get_template
from django.views import defaults
from rest_framework import exceptions
from rest_framework.permissions import SAFE_METHODS
from rest_framework.response import Response
from rest_framework.views import exception_handler

from conversations.cursors import InvalidCursor
from conversations.engines import failures
from conversations.engines.lost_commits import LostCommit
from conversations.exceptions import (
    ConversationBusy,
    ConversationDeleted,
    ConversationError,
    ConversationNotFound,
    CursorAhead,
    EventConflict,
    EventNotFound,
    Fenced,
    HistoryReplaced,
    InvalidConversationId,
    InvalidEvent,
    LoopUnavailable,
    OutcomeUnknown,
    QuotaExceeded,
    StoreUnavailable,
    TooManyWaiting,
)
from conversations.models import PUBLIC_ID_MAX_LENGTH, RESERVED_IDS
from conversations.payloads import halves
from conversations.search.fulltext.limits import SearchTooBroad
from conversations.store import ConversationExists
from convserver.api.direct.outcomes import is_unknown
from sessions_app.encryption import SecretUnreadable
from sessions_app.idempotency import IdempotencyKeyReused
from sessions_app.identity.scopes import ScopeTooSmall
from sessions_app.imports.uploads.problems import (
    FileTooLarge,
    NoRoom,
    NotTheSender,
    NotWhole,
    TooManyImports,
    WrongOffset,
)
from sessions_app.loops.commands import CommandPending
from sessions_app.sockets.native.frames import BadFrame, FrameTooLarge
from sessions_app.storage.usage import TokenNameTaken

logger = logging.getLogger(__name__)

NATIVE_STATUS: dict[type[ConversationError], int] = {
    ConversationNotFound: 404,
    EventNotFound: 404,
    InvalidConversationId: 400,
    InvalidCursor: 400,
    SearchTooBroad: 400,
    InvalidEvent: 400,
    BadFrame: 400,
    FrameTooLarge: 413,
    CursorAhead: 410,
    HistoryReplaced: 410,
    EventConflict: 409,
    ConversationExists: 409,
    LoopUnavailable: 409,
    Fenced: 409,
    QuotaExceeded: 429,
    IdempotencyKeyReused: 409,
    TokenNameTaken: 409,
    TooManyImports: 409,
    NotWhole: 409,
    NotTheSender: 403,
    NoRoom: 507,
    WrongOffset: 409,
    FileTooLarge: 413,
    ScopeTooSmall: 403,
    ConversationBusy: 503,
    TooManyWaiting: 503,
    OutcomeUnknown: 503,
    SecretUnreadable: 503,
    StoreUnavailable: 503,
    CommandPending: 503,
    ConversationError: 400,
}

UNAVAILABLE = (*failures.FAILURES, StoreUnavailable)
"""What no door's own table answers, but one function for all of them: `unavailable`."""
PASSING = (*UNAVAILABLE, ConversationBusy)
"""What may soon be over by itself: 503 at every door, however that words its own failures."""
RETRY_AFTER_S = 5
"""When a client may try again where the database has failed."""

LOG_IN = "Log in, or send a token."
# For a client that has sent the header in another form, and would believe that its token is wrong.
NOT_BEARER = "The `Authorization` header must be `Bearer`, a space, and a token."

ID_RULE = (
    f"An id has 1 to {PUBLIC_ID_MAX_LENGTH} printable characters, without `/`, `\\` and `..`, "
    f"and is not {' or '.join(sorted(RESERVED_IDS))}."
)
"""What the native door adds to the V0 wire's short texts about ids."""

NATIVE = "/api/native"
WIRES = ("/api", "/agent", "/oauth")
"""Here and below programs ask, who take JSON."""

NO_CACHE = {
    "Cache-Control": "no-cache, no-store, must-revalidate, max-age=0",
    "Pragma": "no-cache",
    "Expires": "0",
}
"""Headers of every answer of the V0 door, which no cache may store (spec V0 §0.1)."""


def status_of(error: ConversationError, table: dict[type[ConversationError], int]) -> int:
    """Return the status of the nearest class that the table knows."""
    # A store of an operator may raise classes of its own, below these.
    return next(table[ancestor] for ancestor in type(error).__mro__ if ancestor in table)


def retry_headers(error: Exception) -> dict[str, str]:
    """Return the header that says when to try again, if that is all that is to be done."""
    if isinstance(error, QuotaExceeded):
        return {"Retry-After": str(error.retry_after_s)}
    return {"Retry-After": str(RETRY_AFTER_S)} if isinstance(error, PASSING) else {}


def native_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return what the native REST door answers: {code, detail}; None for UNAVAILABLE."""
    if isinstance(error, UNAVAILABLE):
        return None
    if isinstance(error, ConversationError):
        body = {"code": error.code, "detail": halves.whole(_native_words(error, context))}
        return Response(body, status=status_of(error, NATIVE_STATUS), headers=retry_headers(error))
    known = _known(error, context)
    response = exception_handler(known, context)
    if response is not None:
        # A sentence repeats names and values of the request, which may hold half of an emoji.
        words = halves.whole(" ".join(sentences(known.detail)))
        response.data = {"code": _code(known), "detail": words}
    return response


def _native_words(error: ConversationError, context: dict[str, Any]) -> str:
    if isinstance(error, InvalidConversationId):
        return f"{error}. {ID_RULE}"
    if isinstance(error, ConversationDeleted) and "conversation_id" in context["kwargs"]:
        place = quote(f"{NATIVE}/conversations/{context['kwargs']['conversation_id']}/restore")
        return f"{error} Send POST to {place}, or open “Deleted conversations” in the browser."
    return str(error)


def _known(error: Exception, context: dict[str, Any]) -> Any:
    """Return the REST framework's own exception for Django's."""
    match error:
        case Http404():
            return exceptions.NotFound()
        case PermissionDenied():
            return exceptions.PermissionDenied()
        case exceptions.NotAuthenticated():
            return _worded(error, NOT_BEARER if "Authorization" in context["request"].headers else LOG_IN)
        case exceptions.AuthenticationFailed():
            return _worded(error, f"{error.detail} {LOG_IN}")
        case exceptions.UnsupportedMediaType():
            return _worded(error, "Send the body as JSON, with Content-Type: application/json.")
        case exceptions.NotAcceptable():
            return _worded(error, "Answers are JSON: accept application/json.")
        case exceptions.MethodNotAllowed():
            method, allowed = context["request"].method, ", ".join(context["view"].allowed_methods)
            return _worded(error, f"{method} is not allowed here. Use one of: {allowed}.")
    return error


def _worded(error: exceptions.APIException, detail: str) -> exceptions.APIException:
    """Return the exception, which keeps its code and its challenge, with these words."""
    error.detail = exceptions.ErrorDetail(detail, _code(error))
    return error


def _code(error: exceptions.APIException) -> str:
    """Return one word for the whole."""
    # A body has many fields with codes of their own, but is `invalid` as one.
    codes = error.get_codes()
    return codes if isinstance(codes, str) else error.default_code


def sentences(detail: Any, field: str = "") -> Iterator[str]:
    """Return what is wrong with each field, flat: people read it, programs read the code."""
    match detail:
        case dict():
            for name, inner in detail.items():
                path = f"{field}.{name}" if field else str(name)
                yield from sentences(inner, field if name == "non_field_errors" else path)
        case list():
            for inner in detail:
                yield from sentences(inner, field)
        case _:
            yield f"{field}: {detail}" if field else str(detail)


def is_for_programs(path: str) -> bool:
    """Return whether programs ask at this address, and not people's browsers."""
    return any(_is_at_or_below(path, place) for place in WIRES)


def _is_native(request: HttpRequest) -> bool:
    return _is_at_or_below(request.path, NATIVE)


def _is_at_or_below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an address that nothing serves: programs get JSON, people a page."""
    if _is_native(request):
        detail = f"There is nothing at {request.path}."
        return JsonResponse({"code": "not_found", "detail": detail}, status=404)
    if is_for_programs(request.path):
        return JsonResponse({"detail": "Not Found"}, status=404, headers=NO_CACHE)
    return defaults.page_not_found(request, exception)


def upgrade_required(request: HttpRequest) -> HttpResponse:
    """Answer a plain request to the address of a socket: 426 (RFC 9110 §15.5.22)."""
    detail = f"{request.path} is the address of a WebSocket. Connect to it with a WebSocket client."
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    return JsonResponse({"code": "upgrade_required", "detail": detail}, status=426, headers=headers)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that the framework refuses before a view has looked at it whole."""
    if isinstance(exception, TooManyFieldsSent):
        detail = f"A request may have {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS} parameters at most."
    else:
        detail = "Bad Request"
    if _is_native(request):
        return JsonResponse({"code": "invalid", "detail": detail}, status=400)
    if is_for_programs(request.path):
        return JsonResponse({"detail": detail}, status=400, headers=NO_CACHE)
    return defaults.bad_request(request, exception)


def unavailable(request: HttpRequest, error: Exception) -> HttpResponse:
    """Answer a request on which the database failed, at any door: 503, a sentence, when to come again."""
    if is_unknown(request):
        detail = failures.UNKNOWN
    elif isinstance(error, LostCommit) and request.method in SAFE_METHODS:
        detail = failures.UNREACHABLE  # a read has stored nothing
    elif isinstance(error, ConversationError):
        detail = str(error)
    else:
        detail = failures.sentence(error, connection)
    code = OutcomeUnknown.code if detail == failures.UNKNOWN else "unavailable"
    response = _refused(request, 503, code, detail)
    if detail != failures.UNKNOWN:  # a client that repeats by itself would do it twice
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    log_database_failure(request, error)
    response._has_been_logged = True  # type: ignore[attr-defined]  # by the framework, once more
    return response


def _refused(request: HttpRequest, status: int, code: str, detail: str) -> HttpResponse:
    """Return a refusal in the form of its address; people get the page that is named after the status."""
    if _is_native(request):
        return JsonResponse({"code": code, "detail": detail}, status=status)
    if is_for_programs(request.path):
        return JsonResponse({"detail": detail}, status=status, headers=NO_CACHE)
    return HttpResponse(get_template(f"{status}.html").render({"detail": detail}), status=status)


def too_many(request: HttpRequest, detail: str) -> HttpResponse:
    """Answer a client who waits for its own requests, at any door: 429, a sentence, when to come again."""
    if is_unknown(request):
        # A 429 would say that nothing was stored.
        return unavailable(request, OutcomeUnknown(failures.UNKNOWN))
    response = _refused(request, 429, "too_many_requests", detail)
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


def log_database_failure(request: HttpRequest, error: Exception) -> None:
    """Log the first line of the error."""
    # The other lines may have values of the statement, which are private.
    reason = str(error).strip().partition("\n")[0]
    logger.error("The database failed on %s %s: %s", request.method, request.path, reason)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a request on which the server failed; the log says why."""
    # Django gives this handler no exception.
    error = sys.exc_info()[1]
    if isinstance(error, UNAVAILABLE):  # below a view, or beside one: in a middleware
        return unavailable(request, error)
    if _is_native(request):
        detail = "The server failed to process this request. See its log for the cause."
        return JsonResponse({"code": "internal_error", "detail": detail}, status=500)
    if is_for_programs(request.path):
        return HttpResponse("Internal Server Error", content_type="text/plain", status=500, headers=NO_CACHE)
    return defaults.server_error(request)
