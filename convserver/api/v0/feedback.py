"""Feedback on conversations: stored on this server, and sent nowhere (spec V0 §1.7)."""

from __future__ import annotations

import logging
from typing import Annotated, Literal

from django.db import Error as DatabaseProblem
from drf_spectacular.utils import extend_schema
from pydantic import AfterValidator, BaseModel, Field, field_validator
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.text import storable
from convserver.api.openhands.view import body_of
from convserver.api.scopes import WRITES
from convserver.api.v0.view import V0ViewSet
from convserver.api.v0.workspace import WorkspaceProblem
from sessions_app.models import Feedback, Permissions, Polarity

logger = logging.getLogger(__name__)

ShortText = Annotated[str, Field(max_length=320), AfterValidator(storable)]


class NewFeedback(BaseModel):
    """The user's feedback; other members, such as the trajectory, are ignored."""

    polarity: Polarity
    permissions: Permissions = Permissions.PRIVATE
    version: ShortText = ""
    email: ShortText = ""

    @field_validator("version", "email", mode="before")
    @classmethod
    def _empty_for_null(cls, value: object) -> object:
        return "" if value is None else value


class FeedbackReceipt(BaseModel):
    """The outcome."""

    message: str
    feedback_id: str
    password: str
    """Empty: only its author sees the feedback, so it needs no password."""


class FeedbackResponse(BaseModel):
    """The receipt, in the form of this wire."""

    statusCode: Literal[200] = 200  # noqa: N815 - the wire's name
    body: FeedbackReceipt


class FeedbackViewSet(V0ViewSet):
    """Feedback on a conversation."""

    needs = WRITES

    @extend_schema(
        request=NewFeedback,
        responses={200: FeedbackResponse, 400: Detail, 404: Detail, 500: WorkspaceProblem},
    )
    def create(self, request: Request, conversation_id: str) -> Response:
        """Store the user's feedback for the operators of this server."""
        body = body_of(request, NewFeedback)
        conversation = access.writable(request.user, conversation_id)
        try:
            # The reference sends it to a third party, with the whole trajectory (spec V0 §7.5, A14).
            feedback = Feedback.objects.create(conversation_id=conversation.pk, **body.model_dump())
        except DatabaseProblem as error:
            logger.exception("Feedback to conversation %s could not be stored", conversation.public_id)
            raise Refused(500, {"error": "Failed to submit feedback"}) from error
        receipt = FeedbackReceipt(
            message="Your feedback is stored on this server.", feedback_id=feedback.feedback_id, password=""
        )
        return Response(FeedbackResponse(body=receipt).model_dump())
