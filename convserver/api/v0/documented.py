"""What the API's schema says of each V0 route: parameters, bodies, and every status with its body."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel, RootModel

from convserver.api.v0.bodies import (
    AnyEvent,
    ConversationResponse,
    EventsQuery,
    ExperimentBody,
    ListQuery,
    MessageBody,
    MicroagentQuery,
    NewTitle,
    PromptQuery,
    ProvidersSet,
)
from convserver.api.v0.creation import NewConversation
from convserver.api.v0.errors import Detail, ValidationProblems
from convserver.api.v0.info import ConversationInfo, ConversationInfoResultSet


class Refusal(BaseModel):
    """A refusal that a client can translate by its `msg_id`."""

    status: Literal["error"]
    message: str
    msg_id: str


class NotStarted(BaseModel):
    """A conversation that is unknown, or could not be started or stopped; only then with a message."""

    status: Literal["error"]
    conversation_id: str
    message: str | None = None


class BadRequest(RootModel[Refusal | Detail]):
    """An id or page id that cannot be one, or settings that are missing."""


class Unauthorized(RootModel[Detail | str]):
    """No valid credentials; as a bare text: no token that opens the repository."""


class MaybeConversation(RootModel[ConversationInfo | None]):
    """One conversation, or null."""


class Truth(RootModel[bool]):
    """True or false."""


class EventPageBody(BaseModel):
    """One page of events, each as this wire has it."""

    events: list[AnyEvent]
    has_more: bool


class Success(BaseModel):
    """It is stored."""

    success: Literal[True]


class MessageNotAdded(BaseModel):
    """The message could not be stored."""

    success: Literal[False]
    error: str


class Trajectory(BaseModel):
    """The whole conversation."""

    trajectory: list[AnyEvent]


class NoTrajectory(BaseModel):
    """The conversation could not be read."""

    trajectory: None
    error: str


class RememberPrompt(BaseModel):
    """An instruction that makes an agent remember."""

    status: Literal["success"]
    prompt: str


def _query(model: type[BaseModel]) -> list[OpenApiParameter]:
    """Return the query parameters that a model checks."""
    schema = model.model_json_schema()
    required = set(schema.get("required", ()))
    return [
        OpenApiParameter(name, _inlined(member, schema), OpenApiParameter.QUERY, required=name in required)
        for name, member in schema["properties"].items()
    ]


def _inlined(member: Any, schema: dict[str, Any]) -> Any:
    """Return a member's schema with what it refers to put in its place."""
    if isinstance(member, list):
        return [_inlined(item, schema) for item in member]
    if not isinstance(member, dict):
        return member
    if "$ref" in member:
        return _inlined(schema["$defs"][member["$ref"].rpartition("/")[2]], schema)
    return {name: _inlined(inner, schema) for name, inner in member.items() if name != "title"}


_ID = OpenApiParameter("conversation_id", str, OpenApiParameter.PATH)
_IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "maxLength": 200, "pattern": "^[ -~]*$"},
    OpenApiParameter.HEADER,
    description="A repeated request with the same key stores nothing twice.",
)
_ALWAYS: dict[int, Any] = {401: Detail, 403: Detail}
_CHECKED: dict[int, Any] = {413: Detail, 422: ValidationProblems, **_ALWAYS}

creation: dict[str, Any] = {
    "request": NewConversation,
    "responses": {
        200: ConversationResponse,
        400: BadRequest,
        409: Detail,
        **_CHECKED,
        401: Unauthorized,
        503: Detail,
    },
}
conversation_list: dict[str, Any] = {
    "parameters": _query(ListQuery),
    "responses": {200: ConversationInfoResultSet, 400: Detail, 422: ValidationProblems, **_ALWAYS},
}
conversation: dict[str, Any] = {
    "parameters": [_ID],
    "responses": {200: MaybeConversation, 400: Detail, **_ALWAYS},
}
renaming: dict[str, Any] = {
    "parameters": [_ID],
    "request": NewTitle,
    "responses": {200: Truth, 400: Detail, 404: Refusal, **_CHECKED, 403: Refusal, 500: Refusal},
}
deletion: dict[str, Any] = {
    "parameters": [_ID],
    "responses": {200: Truth, 400: Detail, **_ALWAYS},
}
start: dict[str, Any] = {
    "parameters": [_ID],
    "request": ProvidersSet,
    "responses": {200: ConversationResponse, 400: BadRequest, 404: NotStarted, **_CHECKED, 500: NotStarted},
}
stop: dict[str, Any] = {
    "parameters": [_ID],
    "request": None,
    "responses": {200: ConversationResponse, 400: Detail, **_ALWAYS, 500: NotStarted},
}
event_list: dict[str, Any] = {
    "parameters": [_ID, *_query(EventsQuery)],
    "responses": {200: EventPageBody, 400: Detail, 404: Detail, **_CHECKED},
}
event_append: dict[str, Any] = {
    "parameters": [_ID, _IDEMPOTENCY_KEY],
    "request": AnyEvent,
    "responses": {200: Success, 400: Detail, 404: Detail, 409: Detail, **_CHECKED, 503: Detail},
}
message: dict[str, Any] = {
    "parameters": [_ID, _IDEMPOTENCY_KEY],
    "request": MessageBody,
    "responses": {200: Success, 400: Detail, 404: Detail, **_CHECKED, 500: MessageNotAdded},
}
trajectory: dict[str, Any] = {
    "parameters": [_ID],
    "responses": {200: Trajectory, 400: Detail, 404: Detail, **_ALWAYS, 500: NoTrajectory},
}
experiment: dict[str, Any] = {
    "parameters": [_ID],
    "request": ExperimentBody,
    "responses": {200: Truth, 400: Detail, 404: Detail, **_CHECKED},
}
remember_prompt: dict[str, Any] = {
    "parameters": [_ID, *_query(PromptQuery)],
    "responses": {
        200: RememberPrompt,
        400: BadRequest,
        404: Detail,
        422: ValidationProblems,
        **_ALWAYS,
        502: Detail,
    },
}
microagent_list: dict[str, Any] = {
    "parameters": _query(MicroagentQuery),
    "responses": {200: ConversationInfoResultSet, 400: Detail, 422: ValidationProblems, **_ALWAYS},
}
