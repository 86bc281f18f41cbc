"""Error answers of the agent face (spec V1 R11, §2)."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import BaseModel
from rest_framework.response import Response

from conversations.cursors import InvalidCursor
from conversations.exceptions import ConversationError, ConversationNotFound, EventNotFound, InvalidEvent
from convserver.api.errors import UNAVAILABLE, retry_headers, status_of
from convserver.api.openhands.errors import V0_STATUS, InvalidRequest, v0_response
from sessions_app.openhands_v1.information import dashed
from sessions_app.settings.user_documents import DocumentExists, DocumentNotFound
from sessions_app.settings.user_settings import TooManySecrets

logger = logging.getLogger(__name__)

V1_STATUS = V0_STATUS | {EventNotFound: 404, DocumentNotFound: 404, DocumentExists: 409}


class ServerFailure(BaseModel):
    """The server failed on a request; its log says why."""

    detail: str
    exception: str


def agent_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the agent face's answer to an error; None for UNAVAILABLE."""
    match error:
        # `api.unavailable` answers for all doors.
        case _ if isinstance(error, UNAVAILABLE):
            return None
        case ConversationNotFound():
            return Response({"detail": _not_found(context)}, status=404)
        case InvalidEvent():
            return _invalid(error, "body")
        case TooManySecrets():
            return _invalid(error, "body", "secrets")
        case InvalidCursor():
            return _invalid(error, "query", "page_id")
        case ConversationError():
            status = status_of(error, V1_STATUS)
            return Response({"detail": str(error)}, status=status, headers=retry_headers(error))
    known = v0_response(error, context)
    if known is not None:
        return known
    logger.error("The agent face failed on %s", context["request"].path, exc_info=error)
    # The reference gives the name of the exception, too, which scripts read (spec V1 R11).
    failure = ServerFailure(detail="Internal Server Error", exception=type(error).__name__)
    return Response(failure.model_dump(), status=500)


def _invalid(error: ConversationError, *where: str) -> Response:
    problem = {"type": "value_error", "loc": list(where), "msg": str(error), "input": None}
    return Response({"detail": [problem]}, status=422)


def malformed_id(text: str, *where: str | int) -> InvalidRequest:
    """Return the refusal of an id that is not a UUID."""
    problem = {"type": "uuid_parsing", "loc": list(where), "msg": "Input should be a valid UUID"}
    # The id may be as long as an address.
    return InvalidRequest([{**problem, "input": text[:100]}])


def _not_found(context: dict[str, Any]) -> str:
    """Return the text for a conversation that does not exist; on the event routes it has the id."""
    words: str = getattr(context["view"], "not_found", "Not Found")
    return words.format(conversation_id=dashed(context["kwargs"].get("conversation_id", "")))
