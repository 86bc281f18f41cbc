"""Checkpoints of the files of a conversation: listed, and restored."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from convserver.api.native.shapes import refusals
from convserver.api.native.shapes.checkpoints import NativeCheckpoints, NativeFilesRestored
from convserver.api.native.view import Body, NativeView, Text
from convserver.api.scopes import WRITES
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from sessions_app.checkpoints import kept


class CheckpointsView(NativeView):
    """The checkpoints of one conversation."""

    needs = WRITES

    @extend_schema(responses={200: NativeCheckpoints, **refusals(400, 404)})
    def get(self, request: Request, conversation_id: str) -> Response:
        """Return all that are kept, the newest first."""
        conversation = access.readable(request.user, conversation_id)
        return Response({"checkpoints": [each.as_json() for each in kept.all_of(conversation)]})


@extend_schema_serializer(component_name="RestoredNativeFiles")
class RestoreSerializer(Body):
    """The body of a restore: an event, or a checkpoint by its id."""

    seq = serializers.IntegerField(min_value=-1, max_value=2**63 - 1, required=False)
    checkpoint = Text(required=False, max_length=32)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a body that names none or both."""
        if len(attrs) != 1:
            raise serializers.ValidationError("Give either seq or checkpoint.")
        return attrs


@in_lane(Lane.ABROAD)  # git may take seconds
class RestoreFilesView(NativeView):
    """The files of one conversation."""

    needs = WRITES

    @extend_schema(
        request=RestoreSerializer, responses={200: NativeFilesRestored, **refusals(400, 404, 409, 503)}
    )
    def post(self, request: Request, conversation_id: str) -> Response:
        """Make the files those of the last checkpoint up to an event, or of the one that is named."""
        conversation = access.writable(request.user, conversation_id)
        body = self.checked_body(RestoreSerializer)
        found = kept.meant(conversation, body.get("checkpoint"), body.get("seq"))
        if found is None:
            detail = "There is no such checkpoint. GET …/checkpoints lists those that are kept."
            return Response({"code": "checkpoint_gone", "detail": detail}, status=404)
        before = in_loop(kept.restore, conversation, found)
        return Response({"restored": found.as_json(), "before": before.as_json()})
