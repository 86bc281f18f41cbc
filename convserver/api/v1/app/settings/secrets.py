"""The secrets of a user on the app face: names and descriptions; a value goes in and never comes out."""

from __future__ import annotations

from typing import Any, NoReturn

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.events import ConversationRef
from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.git_tokens import NewProviders, store_tokens
from convserver.api.openhands.new_settings import Text
from convserver.api.openhands.text import StorableText
from convserver.api.openhands.view import body_of, query_of
from convserver.api.scopes import OF_THE_USER
from convserver.api.v1.agent.settings.secrets import (
    KEPT_BACK,
    NewUserSecret,
    UserSecret,
    put_secret,
)
from convserver.api.v1.app.settings.lists import NameQuery, page_of
from convserver.api.v1.app.view import AppViewSet, described, of_list
from convserver.api.v1.authentication import AUTHENTICATION
from convserver.serving.admission import Lane, in_lane
from sessions_app.openhands_v1 import sandboxes
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SecretExists, SecretNotFound, TooManySecrets

UNKNOWN_SANDBOX = "Sandbox not found"


class SecretQuery(NameQuery):
    """Which secrets to return."""

    name__contains: StorableText | None = None


class UserSecretPage(BaseModel):
    """One page of secrets, by name."""

    items: list[UserSecret]
    next_page_id: str | None


class RenamedUserSecret(BaseModel):
    """The name and the description that a secret has from now on; its value stays."""

    name: StorableText
    description: Text | None = None


class EditDone(BaseModel):
    """What was done."""

    message: str


class SecretNames(BaseModel):
    """The secrets that the agent of a sandbox can use."""

    secrets: list[UserSecret]


class AppSecretViewSet(AppViewSet):
    """The secrets of the user."""

    needs = OF_THE_USER

    @extend_schema(parameters=described(SecretQuery), responses={200: UserSecretPage, **of_list})
    def search(self, request: Request) -> Response:
        """Return a page of names and descriptions."""
        query = query_of(request, SecretQuery)
        wanted = (query.name__contains or "").lower()
        found = [each for each in _secrets(self.user_id) if wanted in each.name.lower()]
        items, next_page_id = page_of(found, query, lambda each: each.name)
        return Response(UserSecretPage(items=items, next_page_id=next_page_id).model_dump())

    @extend_schema(request=NewUserSecret, responses={201: EditDone, 400: Detail, 422: ValidationProblems})
    def create(self, request: Request) -> Response:
        """Store a secret, in place of the one of this name if there is one."""
        try:
            put_secret(self.user_id, body_of(request, NewUserSecret))
        except TooManySecrets as error:
            raise Refused(400, {"detail": str(error)}) from error
        return Response({"message": "Secret created successfully"}, status=201)

    @extend_schema(
        request=RenamedUserSecret,
        responses={200: EditDone, 400: Detail, 404: Detail, 422: ValidationProblems},
    )
    def update(self, request: Request, secret_id: str) -> Response:
        """Rename a secret and change its description."""
        body = body_of(request, RenamedUserSecret)
        try:
            user_settings.rename_custom_secret(
                self.user_id,
                secret_id,
                new_name=body.name,
                description=body.description or "",
            )
        except SecretNotFound as error:
            _refuse_unknown(secret_id, error)
        except SecretExists as error:
            raise Refused(400, {"detail": f"Secret {body.name} already exists"}) from error
        return Response({"message": "Secret updated successfully"})

    @extend_schema(responses={200: EditDone, 404: Detail})
    def destroy(self, request: Request, secret_id: str) -> Response:
        """Delete a secret."""
        try:
            user_settings.remove_custom_secret(self.user_id, secret_id)
        except SecretNotFound as error:
            _refuse_unknown(secret_id, error)
        return Response({"message": "Secret deleted successfully"})

    @in_lane(Lane.ABROAD)
    @extend_schema(
        request=NewProviders, responses={200: EditDone, 400: Detail, 401: Detail, 502: Detail, **of_list}
    )
    def store_git_tokens(self, request: Request) -> Response:
        """Check the token of each git provider there, then store all of them or none."""
        store_tokens(self.user_id, body_of(request, NewProviders), error_member="detail")
        return Response({"message": "Git providers stored"})

    @extend_schema(request=None, responses={200: EditDone})
    def remove_git_tokens(self, request: Request) -> Response:
        """Delete the tokens of all git providers."""
        user_settings.remove_provider_tokens(self.user_id)
        return Response({"message": "Unset Git provider tokens"})


_OF_SANDBOX: dict[int, Any] = {401: Detail, 404: Detail}


class SandboxSecretViewSet(AppViewSet):
    """The secrets that a sandbox may use: asked with the key of its conversation."""

    needs = OF_THE_USER
    authentication_classes = AUTHENTICATION
    is_named_by_method = False

    @extend_schema(responses={200: SecretNames, **_OF_SANDBOX})
    def list(self, request: Request, sandbox_id: str) -> Response:
        """Return their names and descriptions."""
        _require_own(request, sandbox_id)
        return Response(SecretNames(secrets=_secrets(self.user_id)).model_dump())

    @extend_schema(responses={403: Detail, **_OF_SANDBOX})
    def retrieve(self, request: Request, sandbox_id: str, name: str) -> Response:
        """Refuse to show a value: agents get them in their turns."""
        _require_own(request, sandbox_id)
        if not any(each.name == name for each in _secrets(self.user_id)):
            raise Refused(404, {"detail": "Secret not found"})
        raise Refused(403, {"detail": KEPT_BACK})


def _require_own(request: Request, sandbox_id: str) -> None:
    """Make sure that the request has the key of a conversation in this sandbox. Raise Refused."""
    # A token of the user has the routes of the user; this one is for programs in the sandbox.
    if not isinstance(request.auth, ConversationRef):
        raise Refused(401, {"detail": "Session API key required"})
    if sandboxes.ids_of([request.auth.pk])[request.auth.pk] != sandbox_id:
        raise Refused(404, {"detail": UNKNOWN_SANDBOX})


def _secrets(user_id: int) -> list[UserSecret]:
    found = user_settings.custom_secrets(user_id)
    return sorted(
        (UserSecret(name=each.name, description=each.description or None) for each in found),
        key=lambda each: each.name,
    )


def _refuse_unknown(name: str, error: SecretNotFound) -> NoReturn:
    raise Refused(404, {"detail": f"Secret with ID {name} not found"}) from error
