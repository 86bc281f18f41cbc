"""The suggestions of forms, and the first questions of a web client (spec V0 §1.8)."""

from __future__ import annotations

from typing import Literal

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.model_names import MODEL_NAMES
from convserver.api.scopes import WRITES
from convserver.api.v0.view import V0ViewSet
from sessions_app.agents.registry import class_of

AGENTS = frozenset(
    {"BrowsingAgent", "CodeActAgent", "DummyAgent", "LocAgent", "ReadOnlyAgent", "VisualBrowsingAgent"}
)
"""The agents that clients of this wire know; whichever they choose, the server's own one answers."""
SECURITY_ANALYZERS = ("grayswan", "invariant", "llm")


class FeatureFlags(BaseModel):
    """What a web client shows or hides."""

    ENABLE_BILLING: bool
    HIDE_LLM_SETTINGS: bool


class ServerOptions(BaseModel):
    """The kind of server; `oss` has no logins, bills and third parties of its own."""

    APP_MODE: Literal["oss"]
    GITHUB_CLIENT_ID: str
    POSTHOG_CLIENT_KEY: str
    FEATURE_FLAGS: FeatureFlags


# An empty key keeps a web client from reporting its user's actions to anybody.
OPTIONS = ServerOptions(
    APP_MODE="oss",
    GITHUB_CLIENT_ID="",
    POSTHOG_CLIENT_KEY="",
    FEATURE_FLAGS=FeatureFlags(ENABLE_BILLING=False, HIDE_LLM_SETTINGS=False),
)


class OptionViewSet(V0ViewSet):
    """The kind of server, and what a form suggests."""

    needs = WRITES

    @extend_schema(responses={200: ServerOptions})
    def config(self, request: Request) -> Response:
        """Return what kind of server this is."""
        return Response(OPTIONS.model_dump())

    @extend_schema(responses={200: list[str]})
    def models(self, request: Request) -> Response:
        """Return the names of models, sorted; any other name can be set too."""
        # Clients show the list as it comes (spec V0 §1.8).
        return Response(sorted(set(MODEL_NAMES)))

    @extend_schema(responses={200: list[str]})
    def agents(self, request: Request) -> Response:
        """Return the names of agents, sorted, including the server's own."""
        return Response(sorted(AGENTS | {class_of().__name__}))

    @extend_schema(responses={200: list[str]})
    def security_analyzers(self, request: Request) -> Response:
        """Return the names of security analyzers, sorted."""
        return Response(list(SECURITY_ANALYZERS))
