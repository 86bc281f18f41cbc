"""What agent servers have and this one has not: empty reads, unknown names, and a reason for each refusal.

An address is below `/agent/`; `{name}` stands for one segment of it, `{path}` for any number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.schema import DoorSchema
from convserver.api.scopes import WRITES
from convserver.api.v1.agent.view import AgentViewSet
from convserver.api.v1.authentication import conversation_of
from sessions_app.workspaces import chosen

NO_WORKSPACES = "The directories of this server are chosen by its operator (CONVSERVER_WORKSPACE_ROOTS)."
NO_OTHERS = "This server has no workspaces beside those of conversations."
NO_SKILLS = "This server installs no skills. A conversation's start brings them, in `agent_context.skills`."
NO_PLUGINS = "This server loads no plugins. Add tool servers to the settings instead."
NO_EXTENSIONS = "This server runs no extensions of the web client."
NO_GOALS = "This server pursues no goals by itself. Send the objective as a message."
NO_META_PROFILES = "This server does not choose among models by itself. Activate a model profile."
NO_CONNECTIONS = "Keys are stored with each model profile here. Enter the key in the profile."
NO_SUBSCRIPTIONS = "This server uses keys of models, and no subscriptions."
NO_OAUTH = "This server opens tool servers by keys and headers. Enter one of these instead."
NO_ACP = "This server runs no ACP agents."
NO_RESPONSES = "This server does not offer its agents as models. Start a conversation instead."
NO_INIT = "This server is ready: its configuration is read when it starts."
NO_TRAJECTORIES = "This server writes no trajectories into files. Ask for the events of the conversation."
NO_RUNTIMES = "Conversations have no runtime of their own on this server."


def _managed(address: str) -> Iterator[tuple[str, str]]:
    """Yield the methods by which clients manage what is installed under one name."""
    yield from ((method, address) for method in ("get", "patch", "delete"))


API = "api/"
ONE = "api/conversations/{conversation_id}/"
"""What the addresses about one conversation begin with."""


def _directories() -> dict[str, Any]:
    """Return the user's own directories in which a conversation may work, as a client's picker shows them."""
    shown = [
        {"id": str(each), "name": each.name or str(each), "path": str(each)} for each in chosen.offered()
    ]
    # A client looks for directories in a parent by itself, which only the files of conversations allow.
    return {"workspaces": shown, "workspaceParents": []}


EMPTY: dict[tuple[str, str], Any] = {
    ("get", "api/init"): {"state": "ready", "error": None},
    ("get", "api/tools/catalog"): {"tools": []},
    ("get", "api/vscode/status"): {"running": False, "enabled": False},
    ("get", ONE + "vscode/status"): {"running": False, "enabled": False},
    ("get", ONE + "vscode/url"): {"url": None},
    ("get", "api/git/repositories/search"): {"items": [], "next_page_id": None, "missing_token": True},
    ("get", "api/llm/provider-connections"): [],
    ("get", "api/skills/installed"): {"skills": []},
    ("get", "api/skills/catalog"): {"skills": []},
    ("get", "api/skills/marketplace"): {"skills": []},
    ("post", "api/plugins"): {"plugins": []},
    ("get", "api/plugins/installed"): {"plugins": []},
    ("get", "api/plugins/marketplace"): {"plugins": []},
    ("get", "api/canvas-extensions/installed"): {"canvas_extensions": []},
    ("post", "api/sub-agents"): {"agents": []},
    ("get", "api/meta-profiles"): {"meta_profiles": [], "active_meta_profile": None},
    ("get", "api/workspaces"): _directories,
}
"""The answers to reads, by method and address, or a function that returns one."""

REFUSED: dict[tuple[str, str], str] = {
    ("post", "api/init"): NO_INIT,
    ("post", "api/workspaces"): NO_WORKSPACES,
    ("post", "api/workspaces/parents"): NO_WORKSPACES,
    ("post", "api/skills/sync"): NO_SKILLS,
    ("post", "api/skills/install"): NO_SKILLS,
    ("post", "api/plugins/install"): NO_PLUGINS,
    ("post", "api/plugins/fetch"): NO_PLUGINS,
    ("post", "api/canvas-extensions/install"): NO_EXTENSIONS,
    ("post", "api/meta-profiles/{name}"): NO_META_PROFILES,
    ("post", "api/llm/provider-connections"): NO_CONNECTIONS,
    ("post", "api/llm/subscription/openai/device/start"): NO_SUBSCRIPTIONS,
    ("post", "api/llm/subscription/openai/device/poll"): NO_SUBSCRIPTIONS,
    ("post", "api/llm/subscription/openai/logout"): NO_SUBSCRIPTIONS,
    ("post", "api/mcp/oauth/start"): NO_OAUTH,
    ("post", "api/acp/models"): NO_ACP,
    ("post", ONE + "goal"): NO_GOALS,
    ("post", ONE + "goal/stop"): NO_GOALS,
    ("post", ONE + "goal/resume"): NO_GOALS,
    ("post", ONE + "load_plugin"): NO_PLUGINS,
    ("post", ONE + "switch_acp_model"): NO_ACP,
    ("post", ONE + "runtime/reprovision"): NO_RUNTIMES,
    ("get", "v1/models"): NO_RESPONSES,
    ("post", "v1/chat/completions"): NO_RESPONSES,
    ("post", "v1/responses"): NO_RESPONSES,
}
"""Why what is asked for cannot be done, by method and address: status 400."""

UNKNOWN: dict[tuple[str, str], str] = {
    ("delete", "api/workspaces"): NO_WORKSPACES,
    ("delete", "api/workspaces/parents"): NO_WORKSPACES,
    ("get", ONE + "workspace"): NO_OTHERS,
    ("get", "api/file/download-trajectory/{name}"): NO_TRAJECTORIES,
    ("get", ONE + "file/download-trajectory/{name}"): NO_TRAJECTORIES,
    **dict.fromkeys(_managed("api/skills/installed/{name}"), NO_SKILLS),
    ("post", "api/skills/installed/{name}/refresh"): NO_SKILLS,
    **dict.fromkeys(_managed("api/plugins/installed/{name}"), NO_PLUGINS),
    ("post", "api/plugins/installed/{name}/refresh"): NO_PLUGINS,
    **dict.fromkeys(_managed("api/canvas-extensions/installed/{name}"), NO_EXTENSIONS),
    ("get", "api/canvas-extensions/installed/{name}/bundle"): NO_EXTENSIONS,
    ("get", "api/canvas-extensions/installed/{name}/icon"): NO_EXTENSIONS,
    ("get", "api/canvas-extensions/installed/{name}/backend"): NO_EXTENSIONS,
    ("get", "api/canvas-extensions/installed/{name}/backend/logs"): NO_EXTENSIONS,
    ("delete", "api/canvas-extensions/installed/{name}/backend/data"): NO_EXTENSIONS,
    ("post", "api/canvas-extensions/installed/{name}/backend/prepare"): NO_EXTENSIONS,
    ("post", "api/canvas-extensions/installed/{name}/backend/start"): NO_EXTENSIONS,
    ("post", "api/canvas-extensions/installed/{name}/backend/stop"): NO_EXTENSIONS,
    ("post", "app-backends/{name}/session"): NO_EXTENSIONS,
    ("delete", "app-backends/{name}/session"): NO_EXTENSIONS,
    ("get", "api/meta-profiles/{name}"): NO_META_PROFILES,
    ("delete", "api/meta-profiles/{name}"): NO_META_PROFILES,
    ("post", "api/meta-profiles/{name}/activate"): NO_META_PROFILES,
    ("patch", "api/llm/provider-connections/{name}"): NO_CONNECTIONS,
    ("delete", "api/llm/provider-connections/{name}"): NO_CONNECTIONS,
    ("get", "api/mcp/oauth/status/{name}"): NO_OAUTH,
    ("post", "api/mcp/oauth/callback/{name}"): NO_OAUTH,
}
"""Why nothing has the name that an address ends with: status 404."""


EMPTY_BODY: Any = dict[str, Any] | list[Any]
"""What an empty read answers, for the API document."""


class Absence(NamedTuple):
    """An address of what is not here, with an action of AbsentViewSet for each method."""

    address: str
    actions: dict[str, Any]
    answers: dict[str, Any]
    """By method: the body of an empty read, or the reason for a refusal."""

    @property
    def base(self) -> str:
        """What the address begins with: ONE, API or nothing."""
        return next(base for base in (ONE, API, "") if self.address.startswith(base))

    @property
    def rest(self) -> str:
        """The address without its base."""
        return self.address.removeprefix(self.base)

    @property
    def name(self) -> str:
        """The name of the route."""
        base = "agent-one" if self.base == ONE else "agent"
        several = ["batch"] if self.rest.endswith("/") else []
        return "-".join([base, *re.findall(r"[a-z0-9]+", self.rest), *several])


def absences() -> Iterator[Absence]:
    """Yield each address once, with all of its methods."""
    found: dict[str, Absence] = {}
    for action, table in (("empty", EMPTY), ("refuse", REFUSED), ("miss", UNKNOWN)):
        for (method, address), answer in table.items():
            one = found.setdefault(address, Absence(address, {}, {}))
            one.actions[method], one.answers[method] = action, answer
    yield from found.values()


class AbsentSchema(DoorSchema):
    """Names operations by action, method and last segment: the same action may answer several of them."""

    def get_operation_id(self) -> str:
        segment = re.search(r"\{(\w+)\}$", self.path)
        words = [super().get_operation_id(), self.method.lower(), *([segment[1]] if segment else [])]
        return "_".join(words)


class AbsentViewSet(AgentViewSet):
    """One address of what is not here."""

    needs = WRITES
    schema = AbsentSchema()

    is_named_by_method = False
    answers: Mapping[str, Any] = MappingProxyType({})

    @extend_schema(request=None, responses={200: EMPTY_BODY, 404: Detail, 422: ValidationProblems})
    def empty(self, request: Request, **named: str) -> Response:
        """Return nothing, in the form of this route."""
        return Response(self._answer(request, named))

    @extend_schema(request=None, responses={400: Detail, 404: Detail, 422: ValidationProblems})
    def refuse(self, request: Request, **named: str) -> NoReturn:
        """Refuse, with the reason."""
        raise Refused(400, {"detail": self._answer(request, named)})

    @extend_schema(request=None, responses={404: Detail, 422: ValidationProblems})
    def miss(self, request: Request, **named: str) -> NoReturn:
        """Report that nothing has this name, with the reason."""
        raise Refused(404, {"detail": self._answer(request, named)})

    def _answer(self, request: Request, named: dict[str, str]) -> Any:
        """Return this method's answer for a client that may reach the conversation of the address."""
        if "conversation_id" in named:
            conversation_of(request, named["conversation_id"])
        # HEAD is the action of GET; its answer has the same headers.
        method = "get" if request.method == "HEAD" else (request.method or "").lower()
        answer = self.answers[method]
        return answer() if callable(answer) else answer

    @extend_schema(request=None, responses={204: None})
    def open_nothing(self, request: Request) -> HttpResponse:
        """Report success: no file here is opened by a cookie of its own."""
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
