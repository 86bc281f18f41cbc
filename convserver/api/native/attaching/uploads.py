"""A file for a message: kept in the workspace, and read for models."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from convserver.api.native.shapes import refusals
from convserver.api.native.view import NativeView
from convserver.api.scopes import WRITES
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from sessions_app.checkpoints import copies
from sessions_app.sockets.native.attached_files import FileOfMessage
from sessions_app.workspaces import attaching


class NamedSerializer(serializers.Serializer[Any]):
    """The query of an upload."""

    name = serializers.CharField(max_length=1_000, help_text="The name of the file.")


class ContentParser(BaseParser):
    """Returns the body as bytes, for any content type; the whole body is limited before."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the body."""
        return stream.read()


@in_lane(Lane.ABROAD)  # a document may take seconds
class FilesView(NativeView):
    """The files of one conversation's messages."""

    needs = WRITES
    parser_classes = (ContentParser,)

    @extend_schema(
        parameters=[NamedSerializer],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={200: FileOfMessage, **refusals(400, 404, 413, 429, 503)},
    )
    def post(self, request: Request, conversation_id: str) -> Response:
        """Keep the body as a file of the workspace, and return it as one of the `files` of a `message`.

        It has the text of a text file, or of a PDF, Word, Excel or PowerPoint file, or a note that says why
        not. No message is stored.
        """
        conversation = access.writable(request.user, conversation_id)
        name = self.checked_query(NamedSerializer)["name"]
        # The framework has no body for an empty one.
        content = request.data if isinstance(request.data, bytes) else b""
        in_loop(copies.require, conversation)
        attached = attaching.attach(conversation, name, content)
        return Response(FileOfMessage.of(attached).model_dump())
