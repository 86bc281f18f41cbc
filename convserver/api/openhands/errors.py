"""Error answers of the V0 door (spec V0 §0.1, §1)."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from pydantic import BaseModel
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from conversations.cursors import InvalidCursor
from conversations.exceptions import (
    ConversationBusy,
    ConversationError,
    ConversationNotFound,
    EventConflict,
    InvalidEvent,
    LoopUnavailable,
    OutcomeUnknown,
    QuotaExceeded,
    StoreUnavailable,
)
from conversations.store import ConversationExists
from convserver.api.errors import UNAVAILABLE, retry_headers, status_of
from sessions_app.encryption import SecretUnreadable
from sessions_app.git_providers.base import GitAuthenticationError
from sessions_app.idempotency import IdempotencyKeyReused
from sessions_app.identity.scopes import ScopeTooSmall
from sessions_app.loops.commands import CommandPending
from sessions_app.settings.user_settings import ModelKeyMissing, SettingsNotFound
from sessions_app.shell_commands.kept import UnknownCommand
from sessions_app.sockets.native.frames import BadFrame, FrameTooLarge
from sessions_app.workspaces.beneath import NoSuchFile

V0_STATUS: dict[type[ConversationError], int] = {
    ConversationNotFound: 404,
    InvalidCursor: 400,
    BadFrame: 400,
    FrameTooLarge: 413,
    InvalidEvent: 422,
    EventConflict: 409,
    ConversationExists: 409,
    LoopUnavailable: 409,
    QuotaExceeded: 429,
    IdempotencyKeyReused: 409,
    ScopeTooSmall: 403,
    NoSuchFile: 404,
    UnknownCommand: 404,
    ConversationBusy: 503,
    OutcomeUnknown: 503,
    StoreUnavailable: 503,
    CommandPending: 503,
    SecretUnreadable: 503,
    ConversationError: 400,
}


class InvalidRequest(Exception):
    """The body or the query does not fit the route; `problems` has the places and reasons."""

    def __init__(self, problems: list[dict[str, Any]]) -> None:
        super().__init__(problems)
        self.problems = problems


class Refused(Exception):
    """The request is well-formed, but is answered with this status and body."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(body)
        self.status = status
        self.body = body


class Problem(BaseModel):
    """One problem of a request."""

    type: str
    loc: list[str | int]
    msg: str
    input: Any = None


class ValidationProblems(BaseModel):
    """422: the problems of a request."""

    detail: list[Problem]


class Detail(BaseModel):
    """Any other refusal, in words."""

    detail: str


def v0_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the V0 door's answer to an error; None for an unknown one."""
    match error:
        # `api.unavailable` answers for all doors.
        case _ if isinstance(error, UNAVAILABLE):
            return None
        case InvalidRequest():
            return Response({"detail": error.problems}, status=422)
        case Refused():
            return Response(error.body, status=error.status)
        case SettingsNotFound():
            return _not_ready("Settings not found", "CONFIGURATION$SETTINGS_NOT_FOUND")
        case ModelKeyMissing():
            return _not_ready(
                "Error authenticating with the LLM provider. Please check your API key",
                "STATUS$ERROR_LLM_AUTHENTICATION",
            )
        case GitAuthenticationError():
            # A bare string, as clients of this wire expect it (spec V0 §0.1).
            return Response(str(error), status=401)
        case ConversationError():
            status = status_of(error, V0_STATUS)
            return Response({"detail": _words(error, context)}, status=status, headers=retry_headers(error))
    return _framework_response(error, context)


def _not_ready(message: str, msg_id: str) -> Response:
    return Response({"status": "error", "message": message, "msg_id": msg_id}, status=400)


def _words(error: ConversationError, context: dict[str, Any]) -> Any:
    if isinstance(error, ConversationNotFound):
        return f"Conversation {context['kwargs'].get('conversation_id')} not found"
    if isinstance(error, InvalidEvent):
        # A 422 of this wire has a list of problems, as pydantic words them.
        return [{"type": "value_error", "loc": ["body"], "msg": str(error), "input": None}]
    return str(error)


def _framework_response(error: Exception, context: dict[str, Any]) -> Response | None:
    response = exception_handler(error, context)
    if response is None:
        return None
    match error:
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            words = "Unauthorized"
        case exceptions.MethodNotAllowed():
            words = "Method Not Allowed"
        case Http404():
            words = "Not Found"
        case PermissionDenied():
            words = "Forbidden"
        case _:
            words = str(getattr(error, "detail", error))
    response.data = {"detail": words}
    return response
