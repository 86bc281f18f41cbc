"""Receipts: when the agent saw the user's messages."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.events import SEQ_MAX
from conversations.log.reads import PAGE_MAX_EVENTS
from convserver.api.native.shapes import NativeReceiptPage, refusals
from convserver.api.native.view import NativeView
from convserver.api.scopes import WRITES
from sessions_app.live.status import iso
from sessions_app.models import InputReceipt


class ReceiptPageSerializer(serializers.Serializer[Any]):
    """The query of a page: receipts of the messages after a seq."""

    after = serializers.IntegerField(min_value=-1, max_value=SEQ_MAX, default=-1)
    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX_EVENTS, default=100)


class ReceiptsView(NativeView):
    """The receipts of one conversation."""

    needs = WRITES

    @extend_schema(
        parameters=[ReceiptPageSerializer], responses={200: NativeReceiptPage, **refusals(400, 404)}
    )
    def get(self, request: Request, conversation_id: str) -> Response:
        """Return a page as {receipts}, in the order of the messages; the agent has not seen any other."""
        conversation = access.readable(request.user, conversation_id)
        query = self.checked_query(ReceiptPageSerializer)
        after, limit = query["after"], query["limit"]
        page = InputReceipt.objects.of(conversation).after(after)[:limit]
        return Response({"receipts": [_shown(receipt) for receipt in page]})


def _shown(receipt: InputReceipt) -> dict[str, Any]:
    return {
        "seq": receipt.seq,
        "seen_seq": receipt.seen_seq,
        "turn": receipt.turn_id,
        "seen_at": iso(receipt.seen_at),
    }
