"""Agents: which ones a conversation can choose."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.native.shapes import NativeAgents
from convserver.api.native.view import NativeView
from convserver.api.scopes import WRITES
from sessions_app.agents import registry
from sessions_app.agents.registry import AgentKind
from sessions_app.agents.remote.listing import kinds_for


class AgentsView(NativeView):
    """The agents of this server."""

    needs = WRITES

    @extend_schema(responses={200: NativeAgents})
    def get(self, request: Request) -> Response:
        """Return the agents that can be chosen: the default first, remote ones that are connected last."""
        kinds = [*registry.kinds(), *kinds_for(self.user_id)]
        return Response({"agents": [_shown(kind) for kind in kinds]})


def _shown(kind: AgentKind) -> dict[str, Any]:
    return {
        "name": kind.name,
        "title": kind.title,
        "description": kind.description,
        "uses_model": kind.uses_model,
        "default": kind.is_default,
        "problem": kind.problem,
        "connected": kind.connected,
    }
