"""API tokens: a user's own keys; the text of a token is shown once, when it is created."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSetMixin

from conversations import access
from conversations.access import pk_of
from conversations.exceptions import ConversationNotFound
from convserver.api.native.shapes import NativeTokens, NewNativeToken, TokenRequest, refusals
from convserver.api.native.view import Body, ChoiceField, NativeView, Text
from convserver.api.scopes import OF_THE_USER
from sessions_app.identity.scopes import require_within
from sessions_app.models import TOKEN_NAME_MAX_LENGTH, ApiToken, Grant, Scope
from sessions_app.storage import usage


class ScopesField(serializers.ListField):
    """Scopes: a list, stored with spaces between them."""

    child = ChoiceField(Scope.choices)

    def to_representation(self, data: Any) -> list[str]:
        """Return the stored scopes as a list."""
        return data.split() if isinstance(data, str) else list(data)

    def to_internal_value(self, data: Any) -> list[str]:
        """Return the scopes. Raise ValidationError for none: such a token could do nothing."""
        found: list[str] = super().to_internal_value(data)
        if not found:
            raise serializers.ValidationError("Choose at least one scope.")
        return found


class TokenSerializer(Body, serializers.ModelSerializer[ApiToken]):
    """A token as its user sees it."""

    id = serializers.CharField(source="public_id", read_only=True)
    name = Text(max_length=TOKEN_NAME_MAX_LENGTH)
    scopes = ScopesField(default=list(Scope), max_length=len(Scope))
    conversation = Text(source="conversation.public_id", default=None, allow_null=True)
    expires_at = serializers.DateTimeField(default=None, allow_null=True)

    class Meta:
        model = ApiToken
        _shown = ("id", "prefix", "created_at", "last_used_at", "revoked_at")
        fields = (*_shown, "name", "scopes", "conversation", "expires_at")
        # `id` is declared above, and this has no effect on what is declared.
        read_only_fields = _shown[1:]

    def validate_expires_at(self, moment: datetime | None) -> datetime | None:
        """Return a moment of the future."""
        if moment is not None and moment <= timezone.now():
            raise serializers.ValidationError("This must be in the future.")
        return moment


class TokenViewSet(ViewSetMixin, NativeView):
    """The user's tokens."""

    needs = OF_THE_USER
    lookup_url_kwarg = "token_id"
    lookup_value_regex = "[A-Za-z0-9_-]{1,100}"

    @extend_schema(responses={200: NativeTokens})
    def list(self, request: Request) -> Response:
        """Return all of the user's tokens, including revoked ones."""
        rows = ApiToken.objects.filter(user_id=pk_of(request.user)).select_related("conversation")
        rows = rows.order_by("pk")
        return Response({"tokens": TokenSerializer(rows, many=True).data})

    @extend_schema(request=TokenRequest, responses={201: NewNativeToken, **refusals(404, 409)})
    def create(self, request: Request) -> Response:
        """Create a token; only this response contains its text."""
        given = self.checked_body(TokenSerializer)
        public_id = (given["conversation"] or {}).get("public_id")
        grant = Grant(
            scopes=given["scopes"],
            expires_at=given["expires_at"],
            conversation=access.readable(request.user, public_id) if public_id else None,
        )
        # A token that may create tokens must not create one that can do more, or longer, than itself.
        require_within(request.user, grant)
        row, text = usage.issue_token(pk_of(request.user), given["name"], grant)
        shown: dict[str, Any] = dict(TokenSerializer(row).data)
        return Response({**shown, "token": text}, status=201)

    @extend_schema(responses={204: None, **refusals(404)})
    def destroy(self, request: Request, token_id: str) -> Response:
        """Revoke a token."""
        row = ApiToken.objects.called(token_id).filter(user_id=pk_of(request.user)).first()
        if row is None:
            raise ConversationNotFound("Token not found.")
        row.revoke()
        return Response(status=204)
