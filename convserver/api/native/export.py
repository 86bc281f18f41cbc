"""Conversations as files."""

from __future__ import annotations

from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from conversations import access
from conversations.models import normal_id
from convserver.api.native import lists
from convserver.api.native.shapes import refusals
from convserver.api.native.view import ChoiceField, NativeView
from convserver.api.negotiation import OneRenderer
from convserver.api.scopes import WRITES
from convserver.batches.actions import BATCH_MAX
from convserver.exports import account
from convserver.exports.conversation import CONTENT_TYPES, Format, download
from convserver.exports.openhands import Layout

ZIP = {(200, "application/zip"): OpenApiTypes.BINARY}
FILES = {(200, kind.partition(";")[0]): OpenApiTypes.BINARY for kind in CONTENT_TYPES.values()} | ZIP
LAYOUTS = [each.value for each in Layout]
ZIPPED = [Format.JSONL.value, *LAYOUTS]
"""The formats of zip files, which may have workspaces in them."""


class ExportSerializer(serializers.Serializer[Any]):
    """The query of an export."""

    format = ChoiceField([*(each.value for each in Format), *LAYOUTS], default=Format.JSONL.value)
    workspaces = serializers.BooleanField(default=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the query. Raise ValidationError for a format without a place for other files."""
        if attrs["workspaces"] and attrs["format"] not in ZIPPED:
            raise serializers.ValidationError(
                {"workspaces": f"The format {attrs['format']} is one file. Choose {', '.join(ZIPPED)}."}
            )
        return attrs


class SelectionSerializer(lists.FilterSerializer):
    """Which conversations an export has: of these ids, and of those that meet all conditions."""

    id = serializers.ListField(child=serializers.CharField(), default=list, max_length=BATCH_MAX)
    workspaces = serializers.BooleanField(default=False)


class ExportView(NativeView):
    """One conversation as a download."""

    needs = WRITES
    content_negotiation_class = OneRenderer  # the framework has a `format` of its own

    @extend_schema(parameters=[ExportSerializer], responses={**FILES, **refusals(400, 404)})
    def get(self, request: Request, conversation_id: str) -> StreamingHttpResponse:
        """Return the conversation as JSON lines, Markdown or one HTML file, named after its title.

        Or as a zip file with the files that OpenHands would keep of it. With workspaces, always as a zip file
        with the workspace beside the conversation.
        """
        row = access.readable_row(request.user, conversation_id)
        query = self.checked_query(ExportSerializer)
        wanted = query["format"]
        if wanted in LAYOUTS or query["workspaces"]:
            layout = Layout(wanted) if wanted in LAYOUTS else None
            return account.in_layout(request.user, row, layout, with_workspaces=query["workspaces"])
        return download(row, Format(wanted))


class AccountExportView(NativeView):
    """All conversations of the user as a download."""

    needs = WRITES
    content_negotiation_class = OneRenderer

    @extend_schema(
        parameters=[SelectionSerializer],
        responses={**ZIP, **refusals(400)},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Return a zip file: each conversation as JSON lines, and attachments beside.

        With workspaces, each is beside as a zip file of its own. With ids or the filters of the list, only
        the conversations that they name. Deleted ones are in none.
        """
        query = self.checked_query(SelectionSerializer)
        chosen = lists.wanted(request.user, {**query, "deleted": False})
        if query["id"]:
            chosen = chosen.with_public_ids(map(normal_id, query["id"]))
        return account.download(request.user, chosen, with_workspaces=query["workspaces"])
