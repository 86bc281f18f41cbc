"""What app servers have and this one has not: empty answers to reads, a reason for each refused change."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands import workspace_files
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.view import Done, body_of
from convserver.api.openhands.workspace_files import NotShown
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v1.agent.absent import NO_ACP
from convserver.api.v1.agent.requests import ProfileChoice
from convserver.api.v1.agent.settings.profiles import model_for_conversation
from convserver.api.v1.app.view import AppViewSet, of_one, readable
from sessions_app.settings import agent_setups
from sessions_app.workspaces.beneath import PathRefused
from sessions_app.workspaces.paths import PROJECT

NO_MARKETPLACES = "This server reads no marketplaces. Add tool servers to the settings instead."
NO_CAPTCHAS = "This server has no captchas, so there is nothing to log."

_FILE = OpenApiParameter("file_path", str)
_PATH = OpenApiParameter("path", str)


class NoHooks(BaseModel):
    """A conversation has no hooks here."""

    hooks: list[str]


class NoConversationSkills(BaseModel):
    """Nothing is known of skills but what the start has brought."""

    skills: list[str]


class UnknownDiff(BaseModel):
    """A file that nothing is known of."""

    modified: None
    original: None


class AppWorkspaceViewSet(AppViewSet):
    """The workspace of a conversation: its files, and nothing of git, hooks and skills."""

    needs = WRITES

    @extend_schema(parameters=[_FILE], responses={200: OpenApiTypes.STR, 503: Detail, **of_one})
    def file(self, request: Request, conversation_id: str) -> Response:
        """Return a file as text; an empty one if there is no such text, or more than can be shown."""
        conversation = readable(request, conversation_id)
        path = workspace_files.named_in(request, _FILE.name) or f"{PROJECT}/PLAN.md"
        with suppress(PathRefused, NotShown):
            return Response(workspace_files.text_of(conversation, path) or "")
        return Response("")

    @extend_schema(parameters=[_PATH], responses={200: list[dict[str, Any]], **of_one})
    def changes(self, request: Request, conversation_id: str) -> Response:
        """Return none."""
        readable(request, conversation_id)
        return Response([])

    @extend_schema(parameters=[_PATH], responses={200: UnknownDiff, **of_one})
    def diff(self, request: Request, conversation_id: str) -> Response:
        """Return an empty diff."""
        readable(request, conversation_id)
        return Response({"modified": None, "original": None})

    @extend_schema(responses={200: NoHooks, **of_one})
    def hooks(self, request: Request, conversation_id: str) -> Response:
        """Return none."""
        readable(request, conversation_id)
        return Response({"hooks": []})

    @extend_schema(responses={200: NoConversationSkills, **of_one})
    def skills(self, request: Request, conversation_id: str) -> Response:
        """Return none."""
        readable(request, conversation_id)
        return Response({"skills": []})


class SwitchViewSet(AppViewSet):
    """The model that a conversation goes on with."""

    needs = RUNS.of_all

    @extend_schema(request=ProfileChoice, responses={200: Done, **of_one})
    def profile(self, request: Request, conversation_id: str) -> Response:
        """Set the model of a stored profile for the turns from the next one on."""
        conversation = readable(request, conversation_id)
        name = body_of(request, ProfileChoice).profile_name
        llm = model_for_conversation(self.user_id, name)
        agent_setups.set_model(conversation, llm)
        return Response(Done(success=True).model_dump())

    @requires(RUNS)
    @extend_schema(request=None, responses={400: Detail, **of_one})
    def acp_model(self, request: Request, conversation_id: str) -> NoReturn:
        """Refuse: no conversation has an ACP agent."""
        readable(request, conversation_id)
        raise Refused(400, {"detail": NO_ACP})


class RefusedViewSet(AppViewSet):
    """What this server does not do for any client."""

    needs = WRITES

    @extend_schema(request=None, responses={400: Detail})
    def marketplaces(self, request: Request) -> NoReturn:
        """Refuse to read marketplaces."""
        raise Refused(400, {"detail": NO_MARKETPLACES})

    @extend_schema(request=None, responses={400: Detail})
    def captcha(self, request: Request) -> NoReturn:
        """Refuse the result of a captcha."""
        raise Refused(400, {"detail": NO_CAPTCHAS})
