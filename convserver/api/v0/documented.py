"""The API document of each V0 route: parameters, bodies, and every status with its body."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel

from convserver.api.idempotency import IDEMPOTENCY_KEY
from convserver.api.openhands.errors import Detail, ValidationProblems
from convserver.api.schema import Door, NativeRefusal
from convserver.api.v0.bodies import (
    AnyEvent,
    ConversationResponse,
    ExperimentBody,
    MessageBody,
    MicroagentQuery,
    NewTitle,
    PromptQuery,
    ProvidersSet,
    V0EventsQuery,
    V0ListQuery,
)
from convserver.api.v0.creation import NewConversation
from convserver.api.v0.info import ConversationInfo, ConversationInfoResultSet


class Refusal(BaseModel):
    """A refusal that a client can translate by its `msg_id`."""

    status: Literal["error"]
    message: str
    msg_id: str


class NotStarted(BaseModel):
    """A conversation that is unknown, or could not be started or stopped; only the latter has a message."""

    status: Literal["error"]
    conversation_id: str
    message: str | None = None


class EventPageBody(BaseModel):
    """A page of events in the form of this wire."""

    events: list[AnyEvent]
    has_more: bool


class Success(BaseModel):
    """The message or the event is stored."""

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
    """An instruction for an agent to remember something."""

    status: Literal["success"]
    prompt: str


DOOR = Door(
    tag="v0",
    refusals={403: Detail | NativeRefusal, 429: Detail},
    key_refusals={401: Detail},
    body_refusals={413: Detail | NativeRefusal, 422: ValidationProblems},
)
"""The errors that any of these routes may answer; the outermost application refuses in the native form."""

# Not that of creations: here the key becomes the id of the event, and is valid as long as the log.
_IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "maxLength": 200, "pattern": "^[ -~]*$"},
    OpenApiParameter.HEADER,
    description="A repeated request with the same key stores nothing twice.",
)

creation: dict[str, Any] = {
    "parameters": [IDEMPOTENCY_KEY],
    "request": NewConversation,
    "responses": {
        200: ConversationResponse,
        400: Refusal | Detail,
        409: Detail,
        401: Detail | str,
        503: Detail,
    },
}
conversation_list: dict[str, Any] = {
    "parameters": [V0ListQuery],
    "responses": {200: ConversationInfoResultSet, 400: Detail, 422: ValidationProblems},
}
conversation: dict[str, Any] = {
    "responses": {200: ConversationInfo | None, 400: Detail},
}
renaming: dict[str, Any] = {
    "request": NewTitle,
    "responses": {200: bool, 400: Detail, 403: Refusal | Detail | NativeRefusal, 404: Refusal, 500: Refusal},
}
deletion: dict[str, Any] = {
    "responses": {200: bool, 400: Detail},
}
start: dict[str, Any] = {
    "request": ProvidersSet,
    "responses": {200: ConversationResponse, 400: Refusal | Detail, 404: NotStarted, 500: NotStarted},
}
stop: dict[str, Any] = {
    "request": None,
    "responses": {200: ConversationResponse, 400: Detail, 500: NotStarted},
}
event_list: dict[str, Any] = {
    "parameters": [V0EventsQuery],
    "responses": {200: EventPageBody, 400: Detail, 404: Detail, 422: ValidationProblems},
}
event_append: dict[str, Any] = {
    "parameters": [_IDEMPOTENCY_KEY],
    "request": AnyEvent,
    "responses": {200: Success, 400: Detail, 404: Detail, 409: Detail, 503: Detail},
}
message: dict[str, Any] = {
    "parameters": [_IDEMPOTENCY_KEY],
    "request": MessageBody,
    "responses": {200: Success, 400: Detail, 404: Detail, 409: Detail, 500: MessageNotAdded, 503: Detail},
}
trajectory: dict[str, Any] = {
    "responses": {200: Trajectory, 400: Detail, 404: Detail, 500: NoTrajectory},
}
experiment: dict[str, Any] = {
    "request": ExperimentBody,
    "responses": {200: bool, 400: Detail, 404: Detail},
}
remember_prompt: dict[str, Any] = {
    "parameters": [PromptQuery],
    "responses": {
        200: RememberPrompt,
        400: Refusal | Detail,
        404: Detail,
        422: ValidationProblems,
        502: Detail,
    },
}
microagent_list: dict[str, Any] = {
    "parameters": [MicroagentQuery],
    "responses": {200: ConversationInfoResultSet, 400: Detail, 422: ValidationProblems},
}
