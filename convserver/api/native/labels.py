"""The labels of the user's conversations, with how many have each."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.store import labels
from convserver.api.native.shapes import NativeLabels, refusals
from convserver.api.native.view import NativeView
from convserver.api.scopes import WRITES
from convserver.pagination import PAGE_MAX


class LabelsSerializer(serializers.Serializer[Any]):
    """The query of a page of labels."""

    name = serializers.CharField(
        default=None, trim_whitespace=False, max_length=labels.LABEL_MAX_LENGTH, help_text="Only its values."
    )
    after = serializers.CharField(
        default="",
        allow_blank=True,
        trim_whitespace=False,
        max_length=labels.LABEL_MAX_LENGTH,
        help_text="The last label of the page before.",
    )
    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=PAGE_MAX)


class LabelsView(NativeView):
    """The labels that the user's conversations have."""

    needs = WRITES.of_lists

    @extend_schema(parameters=[LabelsSerializer], responses={200: NativeLabels, **refusals(400)})
    def get(self, request: Request) -> Response:
        """Return a page of labels in their order: the names of tags, or with `name` the values of one.

        Deleted conversations do not count. `next_after` is null on the last page.
        """
        query = self.checked_query(LabelsSerializer)
        name, after, limit = (query[each] for each in ("name", "after", "limit"))
        # One label more tells that there is another page.
        found = labels.counted(request.user, name=name, after=after, limit=limit + 1)
        page = found[:limit]
        return Response(
            {
                "labels": [asdict(label) for label in page],
                "next_after": page[-1].label if len(found) > limit else None,
            }
        )
