"""The OpenAPI document: how each operation is described, and the two addresses that show it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from types import GenericAlias, NoneType
from typing import Any, cast, get_args

from django.conf import settings
from django.http import HttpResponse
from drf_spectacular.drainage import warn
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent, is_higher_order_type_hint, is_list_serializer
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.utils import Direction, OpenApiResponse
from pydantic import BaseModel, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from rest_framework.renderers import TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from typing_extensions import is_typeddict

from conversations.models import PUBLIC_ID_MAX_LENGTH
from convserver.api.scopes import OPEN
from sessions_app.identity.authentication import lets_everybody_in

RENDERERS = (OpenApiJsonRenderer2, OpenApiJsonRenderer, OpenApiYamlRenderer2, OpenApiYamlRenderer)
"""The first one answers requests without a preference."""

REF_TEMPLATE = "#/components/schemas/{model}"

PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "conversation_id": {
        "description": (
            "Printable text without `/`, `\\` and `..`, except `search` and `count`; a UUID in any spelling."
        ),
        "example": "my-first",
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": PUBLIC_ID_MAX_LENGTH,
            "pattern": r"^[^/\\\x00-\x1f]+$",
        },
    },
}
"""Parts of an address that mean the same at every door."""


class NativeRefusal(BaseModel):
    """Why a request was not carried out, at the native door or before any door."""

    code: str = Field(description="For programs; stable.")
    detail: str = Field(description="For people.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """The common part of all operations of one door.

    A view's `door` names it; else it is that of the view's package. A status maps to a body's type, as in
    `extend_schema(responses=…)`; a status that an operation describes itself is left alone.
    """

    tag: str
    refusals: Mapping[int, Any] = field(default_factory=dict)
    key_refusals: Mapping[int, Any] = field(default_factory=dict)
    """Of operations that look at credentials."""
    body_refusals: Mapping[int, Any] = field(default_factory=dict)
    """Of operations that read a body."""


class Untitled(GenerateJsonSchema):
    """Writes no titles that only repeat the name of a member."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class DoorSchema(AutoSchema):
    """Describes an operation as its annotation says it, with what its door adds.

    Bodies are serializers, or any type that pydantic knows: models, `Model | None`, `list[Model]`,
    `type(None)` for `null`; and `None` for no body.
    """

    def get_tags(self) -> list[str]:
        return [self._door.tag]

    def get_summary(self) -> str:
        """Return the first paragraph of the handler's docstring."""
        return _paragraphs(super().get_description())[0].rstrip(".")

    def get_description(self) -> str:  # type: ignore[override]
        """Return what follows the first paragraph."""
        return _paragraphs(super().get_description())[1]

    def get_operation_id(self) -> str:
        """Return the words of the address, and what is done there."""
        words = [word.replace("-", "_") for word in self._tokenize_path()]
        by_method = getattr(self.view, "is_named_by_method", False)
        verb = self.method.lower() if by_method else getattr(self.view, "action", None) or self.method.lower()
        return "_".join(words if words[-1:] == [verb] else [*words, verb])

    @property
    def _door(self) -> Door:
        door = getattr(self.view, "door", None)
        package = type(self.view).__module__.split(".")[-2]
        return door if isinstance(door, Door) else Door(tag=package)

    def _is_list_view(self, serializer: Any = None) -> bool:
        """Return whether the annotation itself is a list: an action's name decides nothing."""
        return is_list_serializer(serializer)

    def _resolve_path_parameters(self, variables: Sequence[str]) -> list[dict[str, Any]]:
        known = [
            {"name": name, "in": "path", "required": True, **PATH_PARAMETERS[name]}
            for name in variables
            if name in PATH_PARAMETERS
        ]
        others = [name for name in variables if name not in PATH_PARAMETERS]
        return [*known, *super()._resolve_path_parameters(others)]

    def _map_serializer_field(self, field: Any, direction: Any, bypass_extensions: bool = False) -> Any:
        schema = super()._map_serializer_field(field, direction, bypass_extensions)
        schema.pop("x-spec-enum-id", None)  # a note for a hook that is not used here
        return schema

    def _get_request_for_media_type(self, serializer: Any, direction: str = "request") -> Any:
        described = self._described(serializer, "validation")
        schema, is_required = super()._get_request_for_media_type(described, direction)
        is_ours = described is not serializer
        return schema, NoneType not in get_args(serializer) if is_ours else is_required

    def _get_response_bodies(self, direction: Direction = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        for status, body in self._refusals().items():
            if str(status) not in bodies:
                bodies[str(status)] = self._get_response_for_code(body, str(status), ["application/json"])
        return dict(sorted(bodies.items()))

    def _refusals(self) -> dict[int, Any]:
        """Return what any operation of this kind may be answered with."""
        door = self._door
        # The outermost application refuses foreign pages and names before a door is reached.
        found: dict[int, Any] = {403: NativeRefusal, **door.refusals}
        if self.view.get_authenticators():
            found |= door.key_refusals
        if self.method in ("POST", "PUT", "PATCH") and self.get_request_serializer() is not None:
            found |= {413: NativeRefusal, **door.body_refusals}
        return found

    def _get_response_for_code(
        self, serializer: Any, status_code: str, media_types: Any = None, direction: str = "response"
    ) -> Any:
        shown = serializer if isinstance(serializer, OpenApiResponse) else OpenApiResponse(serializer)
        answer = OpenApiResponse(
            response=self._described(shown.response, "serialization"),
            description=shown.description or HTTPStatus(int(status_code)).phrase,
            examples=shown.examples,
        )
        return super()._get_response_for_code(answer, status_code, media_types, direction)

    def _described(self, body: Any, mode: Any) -> Any:
        """Return the JSON schema of a type that pydantic knows; anything else as it is."""
        is_class = isinstance(body, type) and (is_typeddict(body) or issubclass(body, (BaseModel, NoneType)))
        if not is_class and not is_higher_order_type_hint(body):
            return body
        # As a list's item a model is a reference, which it is not by itself.
        adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, GenericAlias(list, (body,))))
        schema = adapter.json_schema(mode=mode, ref_template=REF_TEMPLATE, schema_generator=Untitled)
        for name, definition in schema.get("$defs", {}).items():
            self._register(name, definition)
        return schema["items"]

    def _register(self, name: str, schema: dict[str, Any]) -> None:
        component = ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema)
        if component in self.registry and self.registry[component].schema != schema:
            warn(f"Two different shapes are called {name}: one needs another name.")
        self.registry.register_on_missing(component)


def _paragraphs(text: str) -> tuple[str, str]:
    first, _, rest = text.strip().partition("\n\n")
    return " ".join(first.split()), rest.strip()


class KeyScheme(OpenApiAuthenticationExtension):
    """Either of the two headers that bring a key."""

    target_class = "convserver.api.authentication.KeyAuthentication"
    match_subclasses = True
    name = ["sessionApiKey", "bearer"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> list[dict[str, list[Any]]]:
        return [{name: []} for name in self.name]

    def get_security_definition(self, auto_schema: AutoSchema) -> list[dict[str, Any]]:
        return [
            {
                "type": "apiKey",
                "in": "header",
                "name": "X-Session-API-Key",
                "description": "The server's key, or a token.",
            },
            {"type": "http", "scheme": "bearer", "description": "A token, or the server's key."},
        ]


class ConversationKeyScheme(OpenApiAuthenticationExtension):
    """The header of the key of one conversation."""

    target_class = "convserver.api.v1.authentication.ConversationKeyAuthentication"
    name = "conversationKey"
    words = "The key of one conversation; it gives access to that conversation only."

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "apiKey", "in": "header", "name": "X-Session-API-Key", "description": self.words}


class LoginScheme(OpenApiAuthenticationExtension):
    """The cookie of a login."""

    target_class = "convserver.api.authentication.LoginAuthentication"
    name = "login"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {
            "type": "apiKey",
            "in": "cookie",
            "name": settings.SESSION_COOKIE_NAME,
            "description": "The cookie of a login; changes also need the header `X-CSRFToken`.",
        }


class SandboxKeyScheme(ConversationKeyScheme):
    """The header by which agent servers elsewhere name the sandbox of their reports."""

    target_class = "convserver.api.v1.app.webhook_reports.SandboxKeyAuthentication"
    name = "sandboxKey"
    words = "The key of a conversation; it gives access to its sandbox only."


def document(media_type: str) -> bytes:
    """Return the whole document as this media type has it, made once in a process's life."""
    renderer = next(each for each in RENDERERS if each.media_type == media_type)
    # By the class of the renderer: two media types stand for each form.
    return _as_yaml() if issubclass(renderer, OpenApiYamlRenderer) else _as_json()


@cache
def _as_json() -> bytes:
    written: bytes = OpenApiJsonRenderer().render(
        SchemaGenerator().get_schema(request=None, public=True), renderer_context={}
    )
    return written


@cache
def _as_yaml() -> bytes:
    # To read what was written is many times quicker than to look at all views again.
    written = OpenApiYamlRenderer().render(json.loads(_as_json()), renderer_context={})
    return written if isinstance(written, bytes) else written.encode()


class SchemaView(APIView):
    """The document, for all clients."""

    needs = OPEN
    schema = None
    renderer_classes = RENDERERS

    def get(self, request: Request) -> HttpResponse:
        """Return it as JSON, or as YAML where `Accept` or `?format=yaml` says so."""
        media_type = request.accepted_renderer.media_type
        return HttpResponse(document(media_type), content_type=media_type)


class DocsView(APIView):
    """A page to read the document on, and to try it out."""

    needs = OPEN
    schema = None
    renderer_classes = (TemplateHTMLRenderer,)
    template_name = "web/docs.html"

    def get(self, request: Request) -> Response:
        """Return the page; its script reads the document."""
        return Response({"needs_csrf_token": not lets_everybody_in()})
