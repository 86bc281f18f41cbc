"""The tokens of a user's git providers (spec V0 §1.10)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail
from convserver.api.openhands.git_tokens import NewProviders, store_tokens
from convserver.api.openhands.view import body_of
from convserver.api.scopes import OF_THE_USER
from convserver.api.v0.settings.failures import Failure, Message, failing_with
from convserver.api.v0.view import V0ViewSet
from convserver.serving.admission import Lane, in_lane
from sessions_app.settings import user_settings


class GitProviderViewSet(V0ViewSet):
    """The git providers of the user."""

    needs = OF_THE_USER

    @in_lane(Lane.ABROAD)
    @extend_schema(
        request=NewProviders,
        responses={200: Message, 400: Failure | Detail, 401: Failure | Detail, 500: Failure, 502: Failure},
    )
    def add(self, request: Request) -> Response:
        """Check each token with its provider, then store all of them or none."""
        body = body_of(request, NewProviders)
        with failing_with("Something went wrong storing git providers"):
            store_tokens(self.user_id, body, error_member="error")
        return Response({"message": "Git providers stored"})

    @extend_schema(request=None, responses={200: Message, 500: Failure})
    def unset(self, request: Request) -> Response:
        """Delete the tokens of all git providers."""
        with failing_with("Something went wrong unsetting tokens"):
            user_settings.remove_provider_tokens(self.user_id)
        return Response({"message": "Unset Git provider tokens"})
