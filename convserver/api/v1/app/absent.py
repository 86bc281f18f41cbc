"""What app servers have and this one has not: empty answers to reads, a reason for each refused change."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, NoReturn

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands import workspace_files, workspace_git
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.view import Done, body_of
from convserver.api.openhands.workspace_files import NotShown
from convserver.api.openhands.workspace_git import WorkspaceChange, WorkspaceDiff
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v1.agent.absent import NO_ACP
from convserver.api.v1.agent.requests import ProfileChoice
from convserver.api.v1.agent.settings.profiles import model_for_conversation
from convserver.api.v1.app.view import AppViewSet, of_one, readable
from convserver.serving.admission import Lane, in_lane
from sessions_app.repository_skills import hooks, reading
from sessions_app.repository_skills.hooks import HookMatcher, HookType
from sessions_app.settings import agent_setups
from sessions_app.workspace_git import comparison
from sessions_app.workspaces.beneath import PathRefused
from sessions_app.workspaces.paths import PROJECT

NO_MARKETPLACES = "This server reads no marketplaces. Add tool servers to the settings instead."
NO_CAPTCHAS = "This server has no captchas, so there is nothing to log."

_FILE = OpenApiParameter("file_path", str)
_PATH = OpenApiParameter("path", str)
_REF = OpenApiParameter("ref", str, description="A branch, tag or commit to compare with.")


class ConversationHook(BaseModel):
    """A hook; `command` is empty for one that is a prompt."""

    type: HookType
    command: str
    timeout: int
    is_async: bool = Field(alias="async")


class ConversationHookMatcher(BaseModel):
    """The hooks for the calls of tools that a pattern names."""

    matcher: str
    hooks: list[ConversationHook]


class ConversationHooksOfTime(BaseModel):
    """The hooks for one time, such as `pre_tool_use`."""

    event_type: str
    matchers: list[ConversationHookMatcher]


class ConversationHooks(BaseModel):
    """The hooks in the repository of a conversation, which are not run."""

    hooks: list[ConversationHooksOfTime]


class ConversationSkill(BaseModel):
    """A skill of the repository, or of the start."""

    name: str
    type: Literal["repo", "knowledge", "agentskills"]
    content: str
    triggers: list[str]


class ConversationSkills(BaseModel):
    """The skills of a conversation."""

    skills: list[ConversationSkill]


class AppWorkspaceViewSet(AppViewSet):
    """The workspace of a conversation: its files and changes, and what they say to agents."""

    needs = WRITES

    @extend_schema(parameters=[_FILE], responses={200: OpenApiTypes.STR, 503: Detail, **of_one})
    def file(self, request: Request, conversation_id: str) -> Response:
        """Return a file as text; an empty one if there is no such text, or more than can be shown."""
        conversation = readable(request, conversation_id)
        path = workspace_files.named_in(request, _FILE.name) or f"{PROJECT}/PLAN.md"
        with suppress(PathRefused, NotShown):
            return Response(workspace_files.text_of(conversation, path) or "")
        return Response("")

    @in_lane(Lane.ABROAD)  # git may take seconds
    @extend_schema(
        parameters=[_PATH, _REF], responses={200: list[WorkspaceChange], 400: Detail, 503: Detail, **of_one}
    )
    def changes(self, request: Request, conversation_id: str) -> Response:
        """Return the files of a directory that differ from where the work began."""
        conversation = readable(request, conversation_id)
        path = workspace_files.named_in(request, _PATH.name) or PROJECT
        return Response(workspace_git.shown(workspace_git.changes_of(conversation, path, _ref(request))))

    @in_lane(Lane.ABROAD)
    @extend_schema(
        parameters=[_PATH, _REF], responses={200: WorkspaceDiff, 400: Detail, 503: Detail, **of_one}
    )
    def diff(self, request: Request, conversation_id: str) -> Response:
        """Return a file before and after; null without a repository."""
        conversation = readable(request, conversation_id)
        path = workspace_files.named_in(request, _PATH.name) or PROJECT
        return Response(workspace_git.beside(workspace_git.diff_of(conversation, path, _ref(request))))

    @extend_schema(responses={200: ConversationHooks, 503: Detail, **of_one})
    def hooks(self, request: Request, conversation_id: str) -> Response:
        """Return the hooks of the repository, as its file has them now."""
        found = hooks.of_conversation(readable(request, conversation_id))
        times = {} if found is None else found.times()
        return Response(
            {
                "hooks": [
                    {"event_type": name, "matchers": [_matcher(each) for each in matchers]}
                    for name, matchers in times.items()
                ]
            }
        )

    @extend_schema(responses={200: ConversationSkills, 503: Detail, **of_one})
    def skills(self, request: Request, conversation_id: str) -> Response:
        """Return the skills of the repository, as its files have them now, and of the start."""
        found = reading.loaded(readable(request, conversation_id))
        return Response(
            {
                "skills": [
                    {"name": each.name, "type": each.kind, "content": each.content, "triggers": each.keywords}
                    for each in found
                ]
            }
        )


def _matcher(given: HookMatcher) -> dict[str, Any]:
    shown = {"type", "command", "timeout", "is_async"}
    found = [each.model_dump(by_alias=True, include=shown) for each in given.hooks]
    return {"matcher": given.matcher, "hooks": found}


def _ref(request: Request) -> str:
    return request.query_params.get(_REF.name) or comparison.V1


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
