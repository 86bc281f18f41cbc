"""What forms of web clients suggest: models, their providers, skills."""

from __future__ import annotations

from typing import Annotated

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.model_names import MODEL_NAMES
from convserver.api.openhands.text import StorableText
from convserver.api.openhands.view import query_of
from convserver.api.scopes import WRITES
from convserver.api.v1.app.settings.lists import NameQuery, page_of
from convserver.api.v1.app.view import AppViewSet, described, of_list
from convserver.pagination import PAGE_MAX

Words = Annotated[StorableText, Field(max_length=1000)]


class ProviderQuery(NameQuery):
    """Which providers to return."""

    limit: int = Field(default=50, ge=1, le=PAGE_MAX)
    query: Words | None = None
    verified__eq: bool | None = None


class ModelQuery(ProviderQuery):
    """Which models to return."""

    provider__eq: Words | None = None


class SuggestedModel(BaseModel):
    """A model; any other name can be set too."""

    provider: str | None
    name: str
    verified: bool = True
    hidden: bool = False
    canonical: str | None = None


class SuggestedModelPage(BaseModel):
    """One page of models."""

    items: list[SuggestedModel]
    next_page_id: str | None


class SuggestedProvider(BaseModel):
    """A provider of models."""

    name: str
    verified: bool = True


class SuggestedProviderPage(BaseModel):
    """One page of providers."""

    items: list[SuggestedProvider]
    next_page_id: str | None


class NoSkills(BaseModel):
    """A page without skills: this server installs none."""

    items: list[str]
    next_page_id: None


class ChoiceViewSet(AppViewSet):
    """The suggestions of forms."""

    needs = WRITES

    @extend_schema(parameters=described(ModelQuery), responses={200: SuggestedModelPage, **of_list})
    def models(self, request: Request) -> Response:
        """Return a page of the names of models."""
        query = query_of(request, ModelQuery)
        found = [
            name
            for name in sorted(set(MODEL_NAMES))
            if _matches(query, name) and query.provider__eq in (None, name.partition("/")[0])
        ]
        page, next_page_id = page_of(found, query, lambda each: each)
        parts = [name.partition("/") for name in page]
        items = [SuggestedModel(provider=provider, name=name) for provider, _, name in parts]
        return Response(SuggestedModelPage(items=items, next_page_id=next_page_id).model_dump())

    @extend_schema(parameters=described(ProviderQuery), responses={200: SuggestedProviderPage, **of_list})
    def providers(self, request: Request) -> Response:
        """Return a page of the providers of those models."""
        query = query_of(request, ProviderQuery)
        found = sorted({name.partition("/")[0] for name in MODEL_NAMES})
        page, next_page_id = page_of(
            [name for name in found if _matches(query, name)], query, lambda each: each
        )
        items = [SuggestedProvider(name=name) for name in page]
        return Response(SuggestedProviderPage(items=items, next_page_id=next_page_id).model_dump())

    @extend_schema(parameters=described(NameQuery), responses={200: NoSkills, **of_list})
    def skills(self, request: Request) -> Response:
        """Return none: a conversation's start brings its skills."""
        query_of(request, NameQuery)
        return Response({"items": [], "next_page_id": None})


def _matches(query: ProviderQuery, name: str) -> bool:
    # All that is listed is verified, so that a list of the others is empty.
    return query.verified__eq is not False and (query.query or "").lower() in name.lower()
