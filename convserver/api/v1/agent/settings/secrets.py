"""The secrets of a user on the agent face: names and descriptions; a value goes in and never comes out."""

from __future__ import annotations

from typing import Annotated

from drf_spectacular.utils import extend_schema
from pydantic import AfterValidator, BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.new_settings import Key, Text
from convserver.api.openhands.view import body_of
from convserver.api.scopes import OF_THE_USER
from convserver.api.v1.agent.settings.view import OfUserViewSet
from sessions_app.settings import user_settings
from sessions_app.settings.setup_keys import MASK
from sessions_app.settings.user_settings import SecretExists, SecretNotFound

KEPT_BACK = "The values of secrets are not shown. The agents of your conversations have them."


def _is_value(text: str) -> str:
    # A client that sends back what it was shown would replace the value by asterisks.
    if not text.strip() or text == MASK:
        raise ValueError("the value of a secret is neither blank nor masked")
    return text


class NewUserSecret(BaseModel):
    """A secret; one with the same name is replaced."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
    value: Annotated[Key, AfterValidator(_is_value)]
    description: Text | None = None


class UserSecret(BaseModel):
    """The visible part of a secret."""

    name: str
    description: str | None


class UserSecretList(BaseModel):
    """The user's secrets, by name."""

    secrets: list[UserSecret]


class Deleted(BaseModel):
    """It is gone."""

    deleted: bool


class UserSecretViewSet(OfUserViewSet):
    """The secrets of the user."""

    needs = OF_THE_USER

    @extend_schema(responses={200: UserSecretList})
    def list(self, request: Request) -> Response:
        """Return names and descriptions."""
        found = user_settings.custom_secrets(self.user_id)
        return Response(
            {"secrets": [{**each._asdict(), "description": each.description or None} for each in found]}
        )

    @extend_schema(request=NewUserSecret, responses={200: UserSecret, 400: Detail, 422: ValidationProblems})
    def put(self, request: Request) -> Response:
        """Store a secret, in place of the one of this name if there is one."""
        body = body_of(request, NewUserSecret)
        put_secret(self.user_id, body)
        return Response({"name": body.name, "description": body.description})

    @extend_schema(responses={403: Detail, 404: Detail})
    def retrieve(self, request: Request, name: str) -> Response:
        """Refuse to show the value."""
        if not any(each.name == name for each in user_settings.custom_secrets(self.user_id)):
            raise Refused(404, {"detail": "Secret not found"})
        # Secrets never leave the server (spec V1 R9).
        raise Refused(403, {"detail": KEPT_BACK})

    @extend_schema(responses={200: Deleted, 404: Detail})
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a secret."""
        try:
            user_settings.remove_custom_secret(self.user_id, name)
        except SecretNotFound as error:
            raise Refused(404, {"detail": "Secret not found"}) from error
        return Response({"deleted": True})


def put_secret(user_id: int, secret: NewUserSecret) -> None:
    """Store a secret, in place of the one of this name if there is one. Raise TooManySecrets."""
    description = secret.description
    try:
        user_settings.create_custom_secret(user_id, secret.name, secret.value, description=description or "")
    except SecretExists:
        user_settings.replace_custom_secret(user_id, secret.name, secret.value)
        user_settings.rename_custom_secret(
            user_id, secret.name, new_name=secret.name, description=description
        )
