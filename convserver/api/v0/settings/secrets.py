"""The secrets of a user for their agents (spec V0 §1.10)."""

from __future__ import annotations

from typing import Annotated, NoReturn

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import AfterValidator, BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.new_settings import Key, Text
from convserver.api.openhands.text import storable
from convserver.api.openhands.view import body_of
from convserver.api.scopes import OF_THE_USER
from convserver.api.v0.settings.failures import Failure, Message, failing_with
from convserver.api.v0.view import V0ViewSet
from sessions_app.models import SECRET_NAME_MAX_LENGTH
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SecretExists, SecretNotFound, TooManySecrets


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it cannot be blank")
    return text


Name = Annotated[
    str, Field(max_length=SECRET_NAME_MAX_LENGTH), AfterValidator(storable), AfterValidator(_not_blank)
]


class NewSecret(BaseModel):
    """A new secret."""

    name: Name
    value: Annotated[Key, AfterValidator(_not_blank)]
    description: Text | None = None


class RenamedSecret(BaseModel):
    """A secret's new name; an absent description stays, and null clears it."""

    name: Name
    description: Text | None = None

    @property
    def new_description(self) -> str | None:
        """The description to store; None if the stored one stays."""
        # An absent description erased the stored one in the reference (spec V0 §7.5, A12).
        return (self.description or "") if "description" in self.model_fields_set else None


class SecretInfo(BaseModel):
    """The visible part of a secret."""

    name: str
    description: str


class SecretList(BaseModel):
    """The user's own secrets, by name."""

    custom_secrets: list[SecretInfo]


_SECRET_ID = OpenApiParameter(
    "secret_id", OpenApiTypes.STR, OpenApiParameter.PATH, description="The secret's name."
)


class SecretViewSet(V0ViewSet):
    """The secrets of the user."""

    needs = OF_THE_USER

    @extend_schema(responses={200: SecretList, 500: Failure})
    def list(self, request: Request) -> Response:
        """Return names and descriptions; values are never returned."""
        with failing_with("Failed to get secret names"):
            found = user_settings.custom_secrets(self.user_id)
        return Response({"custom_secrets": [secret._asdict() for secret in found]})

    @extend_schema(request=NewSecret, responses={201: Message, 400: Message | Detail, 500: Failure})
    def create(self, request: Request) -> Response:
        """Create a secret; 400 if the name is taken or there are too many."""
        body = body_of(request, NewSecret)
        with failing_with("Something went wrong creating secret"):
            try:
                user_settings.create_custom_secret(
                    self.user_id, body.name, body.value, description=body.description or ""
                )
            except SecretExists as error:
                _refuse_taken(body.name, error)
            except TooManySecrets as error:
                raise Refused(400, {"message": str(error)}) from error
        return Response({"message": "Secret created successfully"}, status=201)

    @extend_schema(
        parameters=[_SECRET_ID],
        request=RenamedSecret,
        responses={200: Message, 400: Message | Detail, 404: Failure | Detail, 500: Failure},
    )
    def update(self, request: Request, secret_id: str) -> Response:
        """Rename a secret or change its description; its value stays."""
        body = body_of(request, RenamedSecret)
        with failing_with("Something went wrong updating secret"):
            try:
                user_settings.rename_custom_secret(
                    self.user_id,
                    secret_id,
                    new_name=body.name,
                    description=body.new_description,
                )
            except SecretNotFound as error:
                _refuse_unknown(secret_id, error)
            except SecretExists as error:
                _refuse_taken(body.name, error)
        return Response({"message": "Secret updated successfully"})

    @extend_schema(parameters=[_SECRET_ID], responses={200: Message, 404: Failure | Detail, 500: Failure})
    def destroy(self, request: Request, secret_id: str) -> Response:
        """Delete a secret."""
        with failing_with("Something went wrong deleting secret"):
            try:
                user_settings.remove_custom_secret(self.user_id, secret_id)
            except SecretNotFound as error:
                _refuse_unknown(secret_id, error)
        return Response({"message": "Secret deleted successfully"})


def _refuse_taken(name: str, error: SecretExists) -> NoReturn:
    raise Refused(400, {"message": f"Secret {name} already exists"}) from error


def _refuse_unknown(secret_id: str, error: SecretNotFound) -> NoReturn:
    raise Refused(404, {"error": f"Secret with ID {secret_id} not found"}) from error
