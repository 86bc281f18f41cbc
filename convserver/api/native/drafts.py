"""Drafts: messages that the user is writing, in a conversation or for a new one, on any device."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from conversations import access
from conversations.models import ConversationRef
from convserver.api.native.fields import Body, Text
from convserver.api.native.shapes import NATIVE, NativeDraft, NativeDraftConflict, refusals
from convserver.api.scopes import WRITES
from sessions_app.live import drafts
from sessions_app.live.drafts import IMAGES_MAX_BYTES, TEXT_MAX_BYTES, DraftConflict, Edit
from sessions_app.sockets.native.frames import IMAGES_MAX

IMAGE = r"^data:image/[a-zA-Z0-9.+-]{1,100};base64,[A-Za-z0-9+/]*={0,2}\Z"
VERSION_MAX = 2**63 - 2


@extend_schema_serializer(component_name="WrittenNativeDraft")
class DraftSerializer(Body):
    """The body that writes a draft: `version` is the version that was edited, 0 for none."""

    text = Text(allow_blank=True, trim_whitespace=False)
    images = serializers.ListField(
        child=serializers.RegexField(IMAGE, error_messages={"invalid": "An image is a data URL in base64."}),
        default=list,
        max_length=IMAGES_MAX,
    )
    version = serializers.IntegerField(min_value=0, max_value=VERSION_MAX)

    def validate_text(self, text: str) -> str:
        """Refuse a text that is too long."""
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


class DraftView(APIView):
    """The user's draft in one conversation."""

    needs = WRITES

    door = NATIVE

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
        return _write(request, access.writable(request.user, conversation_id))


class NewDraftView(APIView):
    """The user's draft for a new conversation."""

    needs = WRITES

    door = NATIVE

    @extend_schema(responses={200: NativeDraft})
    def get(self, request: Request) -> Response:
        """Return the user's draft for a new conversation."""
        return _read(request, None)

    @extend_schema(
        request=DraftSerializer, responses={200: NativeDraft, 409: NativeDraftConflict, **refusals(400)}
    )
    def put(self, request: Request) -> Response:
        """Store the next version; 409 with the stored draft if `version` is outdated."""
        return _write(request, None)


def _read(request: Request, conversation: ConversationRef | None) -> Response:
    return Response(drafts.read(access.pk_of(request.user), conversation))


def _write(request: Request, conversation: ConversationRef | None) -> Response:
    body = DraftSerializer(data=request.data)
    body.is_valid(raise_exception=True)
    try:
        return Response(drafts.write(access.pk_of(request.user), conversation, Edit(**body.validated_data)))
    except DraftConflict as conflict:
        refusal = {"code": conflict.code, "detail": str(conflict), "draft": conflict.stored}
        return Response(refusal, status=409)
