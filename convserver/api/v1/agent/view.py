"""The base of the agent face's views, and their common part of the API document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, ValidationProblems
from convserver.api.openhands.view import OpenHandsView, OpenHandsViewSet
from convserver.api.schema import Door, NativeRefusal
from convserver.api.v1.agent.errors import ServerFailure, agent_response
from convserver.api.v1.authentication import AUTHENTICATION

AGENT_FACE = Door(
    tag="v1-agent",
    refusals={403: Detail | NativeRefusal, 429: Detail, 500: ServerFailure},
    key_refusals={401: Detail},
    body_refusals={400: Detail, 413: Detail | NativeRefusal, 422: ValidationProblems},
)


class AgentView(OpenHandsView):
    """A view of the agent face."""

    door = AGENT_FACE
    authentication_classes = AUTHENTICATION
    not_found = "Not Found"
    """The answer for a conversation that does not exist."""

    def get_exception_handler(self) -> Callable[..., Any]:
        return agent_response


class AgentViewSet(OpenHandsViewSet, AgentView):
    """A resource of the agent face."""


def described(*parameters: Any) -> Any:
    """Return parameters in the form for a view's annotation, of any type that the API document knows."""
    return list(parameters)


def done() -> Response:
    """Answer that the request was carried out."""
    return Response({"success": True})
