"""API tokens: a user's own keys; the text of a token is shown once, when it is created."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from conversations.access import pk_of
from conversations.exceptions import ConversationNotFound
from convserver.api.native.bodies import Body, Text
from convserver.api.native.shapes import NATIVE, NativeTokens, NewNativeToken, TokenName, refusals
from sessions_app.models import TOKEN_NAME_MAX_LENGTH, ApiToken


class TokenSerializer(Body, serializers.ModelSerializer[ApiToken]):
    """A token as its user sees it."""

    name = Text(max_length=TOKEN_NAME_MAX_LENGTH)

    class Meta:
        model = ApiToken
        fields = ("id", "name", "prefix", "created_at", "last_used_at", "revoked_at")
        read_only_fields = ("id", "prefix", "created_at", "last_used_at", "revoked_at")


class TokenViewSet(ViewSet):
    """The user's tokens."""

    door = NATIVE
    lookup_url_kwarg = "token_id"
    lookup_value_regex = "[0-9]{1,18}"

    @extend_schema(responses={200: NativeTokens})
    def list(self, request: Request) -> Response:
        """Return all of the user's tokens, including revoked ones."""
        rows = ApiToken.objects.filter(user_id=pk_of(request.user)).order_by("pk")
        return Response({"tokens": TokenSerializer(rows, many=True).data})

    @extend_schema(request=TokenName, responses={201: NewNativeToken})
    def create(self, request: Request) -> Response:
        """Create a token; only this response contains its text."""
        body = TokenSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        row, text = ApiToken.issue(pk_of(request.user), body.validated_data["name"])
        shown: dict[str, Any] = dict(TokenSerializer(row).data)
        return Response({**shown, "token": text}, status=201)

    @extend_schema(responses={204: None, **refusals(404)})
    def destroy(self, request: Request, token_id: str) -> Response:
        """Revoke a token."""
        row = ApiToken.objects.filter(user_id=pk_of(request.user), pk=token_id).first()
        if row is None:
            raise ConversationNotFound("Token not found.")
        row.revoke()
        return Response(status=204)
