"""Messages to a conversation that may still be starting: ordinary stored input here (spec V1 §1.7)."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID, uuid4

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.events import ConversationRef
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.view import body_of
from convserver.api.scopes import RUNS
from convserver.api.v1.app.view import UNKNOWN, AppViewSet, checked, readable
from convserver.event_loop import in_loop
from sessions_app.models import StartTask
from sessions_app.openhands_v1 import input as v1_input

TASK = "task-"
"""The prefix of a start's id where a conversation's id is expected."""


class PendingMessage(BaseModel):
    """The user's message."""

    role: Literal["user"] = "user"
    content: list[dict[str, Any]]


class PendingMessageTaken(BaseModel):
    """The message is stored; nothing is queued before it."""

    id: str
    queued: Literal[True]
    position: int


class PendingMessageViewSet(AppViewSet):
    """Messages to a conversation that may still be starting."""

    needs = RUNS

    @extend_schema(
        request=PendingMessage,
        responses={201: PendingMessageTaken, 400: Detail, 404: Detail, 409: Detail, 503: Detail},
    )
    def create(self, request: Request, waiting_id: str) -> Response:
        """Store a message for a conversation, or for a start task (`task-` and its id)."""
        body = body_of(request, PendingMessage)
        if not body.content:
            raise Refused(400, {"detail": "A message has at least one part."})
        conversation = self._conversation(request, waiting_id)
        # Chosen here, because the answer names it.
        event_id = str(uuid4())
        sender_id = self.user_id
        in_loop(
            v1_input.say, conversation, body.model_dump(), sender_id=sender_id, run=True, event_id=event_id
        )
        return Response({"id": event_id, "queued": True, "position": 1}, status=201)

    def _conversation(self, request: Request, waiting_id: str) -> ConversationRef:
        if not waiting_id.startswith(TASK):
            return readable(request, checked(UUID, waiting_id, "path", "waiting_id").hex)
        task_id = checked(UUID, waiting_id.removeprefix(TASK), "path", "waiting_id").hex
        rows = StartTask.objects.of_user(self.user_id).with_task_ids([task_id])
        task = rows.select_related("conversation").first()
        # A failed start has no conversation, and never will.
        if task is None or task.conversation is None:
            raise Refused(404, {"detail": UNKNOWN})
        return readable(request, task.conversation.public_id)
