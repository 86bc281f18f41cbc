"""Exceptions to statuses and bodies: one table per wire."""

from __future__ import annotations

import logging
from typing import Any

from rest_framework.response import Response
from rest_framework.views import exception_handler

from conversations.cursors import InvalidCursor
from conversations.exceptions import (
    ConversationBusy,
    ConversationError,
    ConversationNotFound,
    EventConflict,
    Fenced,
    InvalidConversationId,
    InvalidEvent,
    LoopUnavailable,
)
from conversations.store import ConversationExists
from sessions_app.native import BadFrame

logger = logging.getLogger(__name__)

NATIVE_STATUS: dict[type[ConversationError], int] = {
    ConversationNotFound: 404,
    InvalidConversationId: 400,
    InvalidCursor: 400,
    InvalidEvent: 400,
    BadFrame: 400,
    EventConflict: 409,
    ConversationExists: 409,
    LoopUnavailable: 409,
    Fenced: 409,
    ConversationBusy: 503,
    ConversationError: 400,
}


def status_of(error: ConversationError, table: dict[type[ConversationError], int]) -> int:
    """Return the status of the nearest class that the table knows."""
    return next(table[ancestor] for ancestor in type(error).__mro__ if ancestor in table)


def native_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return what the native REST door answers: {code, detail}."""
    if isinstance(error, ConversationError):
        body = {"code": error.code, "detail": str(error)}
        return Response(body, status=status_of(error, NATIVE_STATUS))
    return exception_handler(error, context)
