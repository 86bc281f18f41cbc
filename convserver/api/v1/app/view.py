"""The base of the V1 app face's views: errors, ids in addresses, queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.exceptions import ConversationError, InvalidEvent, UnknownKind
from conversations.models import Conversation, ConversationRef
from convserver.api.errors import retry_headers, status_of
from convserver.api.openhands.errors import (
    V0_STATUS,
    Detail,
    InvalidRequest,
    Refused,
    ValidationProblems,
    v0_response,
)
from convserver.api.openhands.text import StorableText
from convserver.api.openhands.view import OpenHandsView, OpenHandsViewSet, problems_in
from convserver.api.schema import Door, NativeRefusal
from convserver.pagination import PAGE_MAX

DOOR = Door(
    tag="v1-app",
    refusals={403: Detail | NativeRefusal, 429: Detail},
    key_refusals={401: Detail},
    body_refusals={413: Detail | NativeRefusal, 422: ValidationProblems},
)
"""The errors that any of these routes may answer; the outermost application refuses in the native form."""

UNKNOWN = "unknown_app_conversation"
"""This face's text for a conversation that does not exist."""


class PageQuery(BaseModel):
    """Which page of a list to return."""

    page_id: str | None = None
    limit: int = Field(default=PAGE_MAX, ge=1, le=PAGE_MAX)


class AppView(OpenHandsView):
    """A view of the app face; a conversation's id in its address has been checked when its handler runs."""

    door = DOOR

    def get_exception_handler(self) -> Callable[..., Any]:
        return app_response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate the visitor, then check the id. Raise InvalidRequest."""
        # First, so that a client without credentials gets a 401 for whatever id.
        super().initial(request, *args, **kwargs)
        if "conversation_id" in kwargs:
            checked(UUID, kwargs["conversation_id"], "path", "conversation_id")


class AppViewSet(OpenHandsViewSet, AppView):
    """A resource of the app face."""


def app_response(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return this face's answer to an error, {detail}; None for an unknown one."""
    if isinstance(error, UnknownKind):
        problem = {"type": "enum", "loc": ["query", "kind__eq"], "msg": str(error), "input": None}
        return Response({"detail": [problem]}, status=422)
    if not isinstance(error, ConversationError) or isinstance(error, InvalidEvent):
        return v0_response(error, context)
    status = status_of(error, V0_STATUS)
    return Response({"detail": str(error)}, status=status, headers=retry_headers(error))


def checked(type_: Any, value: object, *where: str) -> Any:
    """Return a value as this type. Raise InvalidRequest with the value's place."""
    try:
        return TypeAdapter(type_).validate_python(value)
    except ValidationError as error:
        # Pydantic names no place: the value is not a member of a model.
        found = problems_in(error, where[0])
        raise InvalidRequest([{**each, "loc": [*where, *each["loc"][1:]]} for each in found]) from error


def uuids_of(request: Request, name: str) -> list[str]:
    """Return the ids of a repeated parameter, in stored form. Raise InvalidRequest or Refused."""
    return [found.hex for found in _repeated(request, name, UUID)]


def texts_of(request: Request, name: str) -> list[str]:
    """Return the texts of a repeated parameter. Raise InvalidRequest or Refused."""
    found: list[str] = _repeated(request, name, StorableText)
    return found


def _repeated(request: Request, name: str, type_: Any) -> list[Any]:
    given = request.query_params.getlist(name)
    if not given:
        problem = {"type": "missing", "loc": ["query", name], "msg": "Field required", "input": None}
        raise InvalidRequest([problem])
    # The reference fails with a 500 at this number, and its web client may ask for it (spec V1 §1.2).
    if len(given) > PAGE_MAX:
        words = f"At most {PAGE_MAX} ids may be asked for at a time, not {len(given)}."
        raise Refused(400, {"detail": words})
    found: list[Any] = checked(list[type_], given, "query", name)
    return found


def described(model: type[BaseModel]) -> Any:
    """Return a query in the form for a view's annotation."""
    return [model]


def list_parameter(name: str, **item: Any) -> OpenApiParameter:
    """Describe a parameter that is repeated."""
    schema = {
        "type": "array",
        "items": {"type": "string", **item},
        "minItems": 1,
        "maxItems": PAGE_MAX,
    }
    return OpenApiParameter(name, schema, required=True, explode=True)


UUIDS = list_parameter("ids", format="uuid")
IDS = list_parameter("id")

of_list: dict[int, Any] = {400: Detail, 422: ValidationProblems}
"""How a list may refuse a query."""
of_one: dict[int, Any] = {404: Detail, 422: ValidationProblems}
"""How a route of one conversation may refuse an id."""


def readable(request: Request, conversation_id: str) -> ConversationRef:
    """Return one of the user's V1 conversations. Raise Refused."""
    return row_of(request, conversation_id).ref


def row_of(request: Request, conversation_id: str) -> Conversation:
    """Return the whole row of one of the user's V1 conversations. Raise Refused."""
    public_id = UUID(conversation_id).hex
    row = Conversation.objects.open_to(request.user).known_to_v1().with_public_ids([public_id]).first()
    if row is None:
        raise Refused(404, {"detail": UNKNOWN})
    return row
