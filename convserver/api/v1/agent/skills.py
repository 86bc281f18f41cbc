"""What the repository in a workspace says to agents: its skills and hooks (spec V1 §2.5, c)."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.events import ConversationRef
from convserver.api.openhands.errors import Detail, ValidationProblems
from convserver.api.openhands.view import body_of
from convserver.api.scopes import WRITES
from convserver.api.v1.agent import meant
from convserver.api.v1.agent.view import AgentViewSet
from sessions_app.repository_skills import hooks, reading
from sessions_app.repository_skills.hooks import HookConfig
from sessions_app.workspaces import paths
from sessions_app.workspaces.beneath import PathRefused

_REFUSED: dict[Any, Any] = {404: Detail, 422: ValidationProblems, 503: Detail}


class ProjectDirectory(BaseModel):
    """The directory of the repository; without it, that of the conversation whose key is given."""

    project_dir: str | None = None


class SkillsWanted(ProjectDirectory):
    """Which skills to return; this server has only those of repositories."""

    load_project: bool = True


class SkillInformation(BaseModel):
    """A skill, and the path of its file."""

    name: str
    type: Literal["repo", "knowledge", "agentskills"]
    content: str
    triggers: list[str]
    source: str | None
    description: str | None
    is_agentskills_format: bool
    disable_model_invocation: bool


class FoundSkillInformation(BaseModel):
    """The skills, and how many come from where."""

    skills: list[SkillInformation]
    sources: dict[str, int]


class FoundHooks(BaseModel):
    """The hooks, which are not run; null without any."""

    hook_config: HookConfig | None


class RepositorySkillViewSet(AgentViewSet):
    """The skills and hooks in the workspace of the conversation that a request means; none without one."""

    needs = WRITES

    @extend_schema(request=SkillsWanted, responses={200: FoundSkillInformation, **_REFUSED})
    def skills(self, request: Request) -> Response:
        """Return the skills of a repository as its files have them now."""
        wanted = body_of(request, SkillsWanted)
        conversation, directory = _meant(request, wanted.project_dir)
        found, home = reading.FoundSkills([], []), ""
        if conversation is not None and wanted.load_project:
            found = reading.of_conversation(conversation, directory)
            home = paths.home_of(conversation).rstrip("/")
        none = dict.fromkeys(("sandbox", "registered_marketplaces", "sdk_base", "org"), 0)
        shown = [
            {
                "name": each.name,
                "type": each.kind,
                "content": each.content,
                "triggers": each.keywords,
                "source": f"{home}/{each.path}",
                "description": each.description or None,
                "is_agentskills_format": each.is_on_demand,
                # A rule for files is not for the model to choose, in the reference.
                "disable_model_invocation": each.is_hidden or bool(each.globs),
            }
            for each in found.skills
        ]
        return Response({"skills": shown, "sources": {**none, "project": len(shown)}})

    @extend_schema(request=ProjectDirectory, responses={200: FoundHooks, **_REFUSED})
    def hooks(self, request: Request) -> Response:
        """Return the hooks of a repository as its file has them now."""
        conversation, directory = _meant(request, body_of(request, ProjectDirectory).project_dir)
        found = None if conversation is None else hooks.of_conversation(conversation, directory)
        return Response({"hook_config": None if found is None else found.model_dump(by_alias=True)})


def _meant(request: Request, path: str | None) -> tuple[ConversationRef | None, str | None]:
    """Return the conversation that a request means, and the directory in its workspace."""
    conversation = meant.if_any(request, "", path or None)
    if conversation is None or not path:
        return conversation, None
    try:
        return conversation, paths.relative(conversation, path) or None
    except PathRefused:  # no directory of this conversation
        return None, None
