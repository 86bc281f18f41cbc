"""The models that forms suggest; any other name can be set too."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.model_names import MODEL_NAMES
from convserver.api.scopes import WRITES
from convserver.api.v1.agent.settings.view import OfUserViewSet


class Models(BaseModel):
    """Names of models, with their provider."""

    models: list[str]


class ModelsByProvider(BaseModel):
    """Names of models, by provider."""

    models: dict[str, list[str]]


class Providers(BaseModel):
    """The providers of those models."""

    providers: list[str]


class Subscription(BaseModel):
    """A subscription at a provider: there is none here."""

    vendor: str
    connected: bool
    account_email: None
    expires_at: None


PROVIDER = OpenApiParameter("provider", str, description="Only its models.")


class ModelViewSet(OfUserViewSet):
    """The models that this server knows by name."""

    needs = WRITES

    @extend_schema(parameters=[PROVIDER], responses={200: Models})
    def list(self, request: Request) -> Response:
        """Return the names of models, sorted; those of one provider without its name."""
        provider = request.query_params.get("provider")
        if provider is None:
            return Response({"models": sorted(MODEL_NAMES)})
        return Response({"models": _by_provider().get(provider, [])})

    @extend_schema(responses={200: ModelsByProvider})
    def verified(self, request: Request) -> Response:
        """Return the names of models, by provider."""
        return Response({"models": _by_provider()})

    @extend_schema(responses={200: Providers})
    def providers(self, request: Request) -> Response:
        """Return the names of providers."""
        return Response({"providers": sorted(_by_provider())})

    @extend_schema(responses={200: Subscription})
    def subscription(self, request: Request) -> Response:
        """Report that there is no subscription."""
        info = Subscription(vendor="openai", connected=False, account_email=None, expires_at=None)
        return Response(info.model_dump())

    @extend_schema(responses={200: Models})
    def subscription_models(self, request: Request) -> Response:
        """Return none."""
        return Response({"vendor": "openai", "models": []})


def _by_provider() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in sorted(MODEL_NAMES):
        provider, _, name = each.partition("/")
        found.setdefault(provider, []).append(name)
    return found
