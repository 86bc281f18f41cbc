"""What agent servers have and this one has not: empty lists to read, and a reason for each refused change."""

from __future__ import annotations

from typing import Any, NoReturn

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.scopes import WRITES
from convserver.api.v1.agent.view import AgentViewSet
from convserver.api.v1.authentication import conversation_of

HOME = "/workspace"
"""The directory that clients begin the paths of workspaces with; there are no files below it."""

NO_WORKSPACES = "Conversations have no workspaces on this server: there are no files, folders and commands."
NO_SKILLS = "This server installs no skills. A conversation's start brings them, in `agent_context.skills`."
NO_PLUGINS = "This server loads no plugins. Add tool servers to the settings instead."
NO_EXTENSIONS = "This server runs no extensions of the web client."
NO_GOALS = "This server pursues no goals by itself. Send the objective as a message."
NO_META_PROFILES = "This server does not choose among models by itself. Activate a model profile."
NO_SUBSCRIPTIONS = "This server uses keys of models, and no subscriptions."
NO_OAUTH = "This server opens tool servers by keys and headers. Enter one of these instead."
NO_ACP = "This server runs no ACP agents."
NO_RUNTIMES = "Conversations have no runtime of their own on this server."

EMPTY: dict[tuple[str, str], Any] = {
    ("get", "tools/catalog"): {"tools": []},
    ("get", "vscode/status"): {"running": False, "enabled": False},
    ("get", "file/home"): {"home": HOME, "favorites": [], "locations": []},
    ("get", "file/search_subdirs"): {"items": [], "next_page_id": None},
    ("get", "git/commits"): {"commits": [], "has_more": False},
    ("get", "git/repositories/search"): {"items": [], "next_page_id": None, "missing_token": True},
    ("get", "bash/bash_events/search"): {"items": [], "next_page_id": None},
    ("post", "hooks"): {"hook_config": None},
    ("post", "skills"): {"skills": [], "sources": {}},
    ("get", "skills/installed"): {"skills": []},
    ("get", "skills/catalog"): {"skills": []},
    ("get", "skills/marketplace"): {"skills": []},
    ("post", "plugins"): {"plugins": []},
    ("get", "plugins/installed"): {"plugins": []},
    ("get", "plugins/marketplace"): {"plugins": []},
    ("get", "canvas-extensions/installed"): {"canvas_extensions": []},
    ("post", "sub-agents"): {"agents": []},
    ("get", "meta-profiles"): {"meta_profiles": [], "active_meta_profile": None},
    ("get", "workspaces"): {"workspaces": [], "workspaceParents": []},
}
"""The answers to reads, by method and path below `/api/`."""

REFUSED: dict[tuple[str, str], str] = {
    ("post", "workspaces"): NO_WORKSPACES,
    ("post", "workspaces/parents"): NO_WORKSPACES,
    ("post", "file/create_directory"): NO_WORKSPACES,
    ("post", "bash/start_bash_command"): NO_WORKSPACES,
    ("post", "bash/execute_bash_command"): NO_WORKSPACES,
    ("post", "skills/sync"): NO_SKILLS,
    ("post", "skills/install"): NO_SKILLS,
    ("post", "plugins/install"): NO_PLUGINS,
    ("post", "plugins/fetch"): NO_PLUGINS,
    ("post", "canvas-extensions/install"): NO_EXTENSIONS,
    ("post", "llm/subscription/openai/device/start"): NO_SUBSCRIPTIONS,
    ("post", "llm/subscription/openai/device/poll"): NO_SUBSCRIPTIONS,
    ("post", "llm/subscription/openai/logout"): NO_SUBSCRIPTIONS,
    ("post", "mcp/oauth/start"): NO_OAUTH,
    ("post", "acp/models"): NO_ACP,
}
"""Why what is asked for cannot be done, by method and path."""

REFUSED_OF_ONE: dict[tuple[str, str], str] = {
    ("post", "goal"): NO_GOALS,
    ("post", "goal/stop"): NO_GOALS,
    ("post", "goal/resume"): NO_GOALS,
    ("post", "load_plugin"): NO_PLUGINS,
    ("post", "switch_acp_model"): NO_ACP,
    ("post", "runtime/reprovision"): NO_RUNTIMES,
}
"""The same below a conversation."""


class AbsentViewSet(AgentViewSet):
    """One route about what is not here."""

    needs = WRITES

    is_named_by_method = False
    answer: Any = None
    words: str = ""

    @extend_schema(request=None, responses={200: dict[str, Any]})
    def empty(self, request: Request) -> Response:
        """Return nothing, in the form of this route."""
        return Response(self.answer)

    @extend_schema(request=None, responses={400: Detail})
    def refuse(self, request: Request) -> NoReturn:
        """Refuse, with the reason."""
        raise Refused(400, {"detail": self.words})

    @extend_schema(request=None, responses={400: Detail, 404: Detail, 422: ValidationProblems})
    def refuse_of_one(self, request: Request, conversation_id: str) -> NoReturn:
        """Refuse, with the reason, a client that may reach the conversation."""
        conversation_of(request, conversation_id)
        raise Refused(400, {"detail": self.words})

    @extend_schema(request=None, responses={204: None})
    def open_nothing(self, request: Request) -> HttpResponse:
        """Report success: the cookie for the files of workspaces is not needed."""
        return _nothing()

    @extend_schema(request=None, responses={204: None})
    def close_nothing(self, request: Request) -> HttpResponse:
        """Report success: there is no such cookie."""
        return _nothing()


def _nothing() -> HttpResponse:
    """Return an answer without a body or a content type: a client would parse JSON."""
    answer = HttpResponse(status=204)
    del answer["Content-Type"]
    return answer
