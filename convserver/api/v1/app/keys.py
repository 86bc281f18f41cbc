"""What OpenHands' command line asks about keys after its log-in."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.scopes import WRITES
from convserver.api.v1.app.shapes import shown_user
from convserver.api.v1.app.view import AppViewSet
from sessions_app.identity import scopes


class ModelKey(BaseModel):
    """The key of the user's model."""

    key: None = Field(description="A stored key never leaves the server.")


class CurrentKey(BaseModel):
    """The token of the request."""

    key: None = Field(description="The text of a token is not stored.")
    id: str | None = Field(description="Null for a login and for the server's key.")
    name: str | None
    user_id: str | None


class KeyViewSet(AppViewSet):
    """The keys that a client could use."""

    needs = WRITES

    @extend_schema(responses={200: ModelKey})
    def model(self, request: Request) -> Response:
        """Return no key: the server uses the user's model, and gives the key to no client."""
        return Response({"key": None})

    @extend_schema(responses={200: CurrentKey})
    def current(self, request: Request) -> Response:
        """Return which token the request has."""
        token = scopes.token_of(request.user)
        shown = CurrentKey(
            key=None,
            id=token.public_id if token else None,
            name=token.name if token else None,
            user_id=shown_user(self.user_id),
        )
        return Response(shown.model_dump())
