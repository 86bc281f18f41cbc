"""Drafts: messages that the user is writing, in a conversation or for a new one, on any device."""

from __future__ import annotations

from typing import Any

from django.db.models import BigIntegerField
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.events import ConversationRef
from convserver.api.native.shapes import NativeDraft, NativeDraftConflict, refusals
from convserver.api.native.view import Body, NativeView, Text
from convserver.api.scopes import WRITES
from sessions_app.live import drafts
from sessions_app.live.drafts import IMAGES_MAX_BYTES, TEXT_MAX_BYTES, DraftConflict, Edit
from sessions_app.sockets.native.attached_files import BadFiles, FileOfMessage, files_of
from sessions_app.sockets.native.frames import IMAGES_MAX

# RegexField searches, and `$` would let a line feed follow.
IMAGE = r"^data:image/[a-zA-Z0-9.+-]{1,100};base64,[A-Za-z0-9+/]*={0,2}\Z"
# The next version is one more, and has to fit its column.
VERSION_MAX = BigIntegerField.MAX_BIGINT - 1


@extend_schema_serializer(component_name="WrittenNativeDraft")
class DraftSerializer(Body):
    """The body that writes a draft: `version` is the version that was edited, 0 for none."""

    text = Text(allow_blank=True, trim_whitespace=False)
    images = serializers.ListField(
        child=serializers.RegexField(IMAGE, error_messages={"invalid": "An image is a data URL in base64."}),
        default=list,
        max_length=IMAGES_MAX,
    )
    files = serializers.ListField(child=serializers.JSONField(), default=list)
    version = serializers.IntegerField(min_value=0, max_value=VERSION_MAX)

    def validate_text(self, text: str) -> str:
        """Refuse a text that is too long."""
        # A field counts characters, of which some have four bytes.
        if len(text.encode()) > TEXT_MAX_BYTES:
            raise serializers.ValidationError(f"The text of a draft can have at most {TEXT_MAX_BYTES} bytes.")
        return text

    def validate_images(self, images: list[str]) -> list[str]:
        """Refuse images that no message could contain."""
        if sum(map(len, images)) > IMAGES_MAX_BYTES:
            raise serializers.ValidationError(
                f"The images of a draft can have at most {IMAGES_MAX_BYTES} bytes."
            )
        return images

    def validate_files(self, files: list[Any]) -> list[dict[str, Any]]:
        """Refuse files that no message could have."""
        try:
            return [FileOfMessage.of(file).model_dump() for file in files_of(files)]
        except BadFiles as error:
            raise serializers.ValidationError(str(error)) from error


class DraftView(NativeView):
    """The user's draft in one conversation."""

    needs = WRITES

    @extend_schema(responses={200: NativeDraft, **refusals(400, 404)})
    def get(self, request: Request, conversation_id: str) -> Response:
        """Return the user's draft in the conversation."""
        return _read(request, access.readable(request.user, conversation_id))

    @extend_schema(
        request=DraftSerializer, responses={200: NativeDraft, 409: NativeDraftConflict, **refusals(400, 404)}
    )
    def put(self, request: Request, conversation_id: str) -> Response:
        """Store the next version; 409 with the stored draft if `version` is outdated.

        An empty draft is stored as well; it tells other devices that the message was sent.
        """
        conversation = access.writable(request.user, conversation_id)
        return _write(request, conversation, self.checked_body(DraftSerializer))


class NewDraftView(NativeView):
    """The user's draft for a new conversation."""

    needs = WRITES

    @extend_schema(responses={200: NativeDraft})
    def get(self, request: Request) -> Response:
        """Return the user's draft for a new conversation."""
        return _read(request, None)

    @extend_schema(
        request=DraftSerializer, responses={200: NativeDraft, 409: NativeDraftConflict, **refusals(400)}
    )
    def put(self, request: Request) -> Response:
        """Store the next version; 409 with the stored draft if `version` is outdated."""
        return _write(request, None, self.checked_body(DraftSerializer))


def _read(request: Request, conversation: ConversationRef | None) -> Response:
    return Response(drafts.read(access.pk_of(request.user), conversation))


def _write(request: Request, conversation: ConversationRef | None, body: dict[str, Any]) -> Response:
    try:
        return Response(drafts.write(access.pk_of(request.user), conversation, Edit(**body)))
    except DraftConflict as conflict:
        refusal = {"code": conflict.code, "detail": str(conflict), "draft": conflict.stored}
        return Response(refusal, status=409)
