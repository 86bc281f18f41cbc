"""The addresses of the agent face: all below `/agent/`, and those that are free on the server's own address.

Each is documented once, below `/agent/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.urls import URLPattern, path, re_path

from convserver.api.v1.agent import absent
from convserver.api.v1.agent.absent import AbsentViewSet
from convserver.api.v1.agent.commands import CommandViewSet
from convserver.api.v1.agent.conversations import AgentConversationViewSet
from convserver.api.v1.agent.events import AgentEventViewSet
from convserver.api.v1.agent.git import AgentGitViewSet
from convserver.api.v1.agent.server_routes import AgentServerInfoView
from convserver.api.v1.agent.settings.agent_profiles import AgentProfileViewSet
from convserver.api.v1.agent.settings.models import ModelViewSet
from convserver.api.v1.agent.settings.profiles import ProfileViewSet as ModelProfileViewSet
from convserver.api.v1.agent.settings.secrets import UserSecretViewSet
from convserver.api.v1.agent.settings.views import AgentSettingsViewSet, ToolServerViewSet
from convserver.api.v1.agent.skills import RepositorySkillViewSet
from convserver.api.v1.agent.steering import SteeringViewSet
from convserver.api.v1.agent.workspace import AgentWorkspaceViewSet, FileViewSet
from convserver.web.probes import AliveView, HealthView, ReadyView

# The same route at another address would be twice in the API document.
UNDESCRIBED: dict[str, Any] = {"schema": None}
SEGMENTS = {"path": r"[\s\S]+"}
"""Patterns of the parts of an address that are more than a segment."""
ACTIONS: dict[str, Any] = {
    "run": {"post": "run"},
    "pause": {"post": "pause"},
    "interrupt": {"post": "interrupt"},
    "condense": {"post": "condense"},
    "secrets": {"post": "add_secrets"},
    "confirmation_policy": {"post": "set_policy"},
    "security_analyzer": {"post": "set_analyzer"},
    "generate_title": {"post": "generate_title"},
    "ask_agent": {"post": "ask_agent"},
    "fork": {"post": "fork"},
    "navigate": {"post": "navigate"},
    "agent_final_response": {"get": "final_response"},
    "switch_llm": {"post": "switch_model"},
    "switch_profile": {"post": "switch_profile"},
    "children": {"post": "start_child"},
    "runtime": {"get": "runtime"},
}

FILE_ACTIONS: dict[str, Any] = {
    "upload": {"post": "upload"},
    "download": {"get": "download"},
    "archive": {"get": "archive"},
    "create_directory": {"post": "create_directory"},
}
"""Those of a conversation; each is also there for the one whose key is given."""

COMMAND_ACTIONS: dict[str, Any] = {
    "start_bash_command": {"post": "start"},
    "execute_bash_command": {"post": "execute"},
    "bash_events/search": {"get": "search"},
    "bash_events/": {"get": "batch"},
    "bash_events": {"delete": "clear"},
    "bash_events/(?P<event_id>[^/]+)": {"get": "retrieve"},
    "bash_commands/(?P<command_id>[^/]+)/stop": {"post": "stop"},
}
"""Those of commands; the same without a conversation."""

COMMIT_ACTIONS: dict[str, Any] = {
    "commits": {"get": "commits"},
    "commits/(?P<sha>[^/]+)/changes": {"get": "commit_changes"},
}
"""Those of git that no other wire has; the same without a conversation."""

CHANGE_ACTIONS: dict[str, Any] = {"changes": {"get": "changes"}, "diff": {"get": "diff"}}

EVENT_ACTIONS: dict[str, Any] = {
    "search": {"get": "search"},
    "count": {"get": "count"},
    "respond_to_confirmation": {"post": "decide"},
}

many = partial(AgentConversationViewSet.as_view, {"get": "batch", "post": "create"})
one = partial(
    AgentConversationViewSet.as_view, {"get": "retrieve", "patch": "partial_update", "delete": "destroy"}
)

settings = partial(AgentSettingsViewSet.as_view, {"get": "retrieve", "patch": "change"})

events = partial(AgentEventViewSet.as_view, {"get": "batch", "post": "create"})


def conversation_routes(prefix: str, **options: Any) -> Iterator[URLPattern]:
    """Yield all routes about conversations below a prefix."""
    yield path(prefix, many(**options), name="agent-conversations")
    yield from free_routes(prefix, **options)
    for name, methods in CHANGE_ACTIONS.items():
        view = AgentGitViewSet.as_view(methods, **options)
        yield re_path(_one(prefix, f"/git/{name}$"), view, name=f"agent-conversation-git-{name}")
    yield from absent_routes(absent.ONE, _one(prefix, "/"), **options)
    yield re_path(_one(prefix, "$"), one(**options), name="agent-conversation")
    yield re_path(_one(prefix, "/events$"), events(**options), name="agent-events")


def free_routes(prefix: str, **options: Any) -> Iterator[URLPattern]:
    """Yield those whose addresses no other wire has."""
    for action in ("search", "count"):
        view = AgentConversationViewSet.as_view({"get": action}, **options)
        yield path(f"{prefix}/{action}", view, name=f"agent-conversations-{action}")
    for name, methods in ACTIONS.items():
        view = SteeringViewSet.as_view(methods, **options)
        yield re_path(_one(prefix, f"/{name}$"), view, name=f"agent-{name.replace('_', '-')}")
    for name, methods in EVENT_ACTIONS.items():
        view = AgentEventViewSet.as_view(methods, **options)
        yield re_path(_one(prefix, f"/events/{name}$"), view, name=f"agent-events-{name.replace('_', '-')}")
    for name, methods in FILE_ACTIONS.items():
        view = FileViewSet.as_view(methods, **options)
        route = f"agent-conversation-file-{name.replace('_', '-')}"
        yield re_path(_one(prefix, f"/file/{name}$"), view, name=route)
    viewed = FileViewSet.as_view({"get": "show"}, **options)
    name = "agent-conversation-workspace-file"
    yield re_path(_one(prefix, r"/workspace/(?P<path>[\s\S]+)\Z"), viewed, name=name)
    yield from _command_and_commit_routes(_one(prefix, "/"), "agent-conversation", **options)
    # The last of them: `search` could also be an id.
    event = _one(prefix, r"/events/(?P<event_id>[^/]+)$")
    yield re_path(event, AgentEventViewSet.as_view({"get": "retrieve"}, **options), name="agent-event")


def _command_and_commit_routes(base: str, named: str, **options: Any) -> Iterator[URLPattern]:
    """Yield the routes about commands and commits below an address."""
    for room, viewset, actions in (
        ("bash", CommandViewSet, COMMAND_ACTIONS),
        ("git", AgentGitViewSet, COMMIT_ACTIONS),
    ):
        for address, methods in actions.items():
            (action,) = methods.values()
            route = f"{named}-{room}-{action.replace('_', '-')}"
            yield re_path(f"{base}{room}/{address}$", viewset.as_view(methods, **options), name=route)


def workspace_routes(prefix: str, **options: Any) -> Iterator[URLPattern]:
    """Yield the routes about workspaces; a path may be in the address or in the query."""
    tools, editor = (
        AgentWorkspaceViewSet.as_view({"get": action}, **options) for action in ("tools", "editor")
    )
    yield path(f"{prefix}tools/", tools, name="agent-tools")
    yield path(f"{prefix}vscode/url", editor, name="agent-vscode-url")
    of_a_path = {
        **{f"git/{name}": partial(AgentGitViewSet.as_view, each) for name, each in CHANGE_ACTIONS.items()},
        "file/upload": partial(FileViewSet.as_view, FILE_ACTIONS["upload"]),
        "file/download": partial(FileViewSet.as_view, FILE_ACTIONS["download"]),
    }
    for name, each in of_a_path.items():
        route = f"agent-{name.replace('/', '-')}"
        yield path(f"{prefix}{name}", each(**UNDESCRIBED), name=route)
        # A path may have slashes and line ends.
        yield re_path(rf"^{prefix}{name}/(?P<path>[\s\S]+)\Z", each(**options), name=route)
    yield from _command_and_commit_routes(f"^{prefix}", "agent", **options)
    looks = {"archive": "archive", "home": "home", "search_subdirs": "subdirectories"}
    actions: dict[str, Any] = {name: {"get": action} for name, action in looks.items()}
    for name, methods in {**actions, "create_directory": FILE_ACTIONS["create_directory"]}.items():
        view = FileViewSet.as_view(methods, **options)
        yield path(f"{prefix}file/{name}", view, name=f"agent-file-{name.replace('_', '-')}")
    for name in ("skills", "hooks"):
        said = RepositorySkillViewSet.as_view({"post": name}, **options)
        yield path(f"{prefix}{name}", said, name=f"agent-{name}")


PROFILES = (
    ("profiles", ModelProfileViewSet, {"validate": {"post": "validate"}}),
    ("agent-profiles", AgentProfileViewSet, {"materialize": {"post": "materialize"}}),
)


def user_routes(prefix: str, **options: Any) -> Iterator[URLPattern]:
    """Yield the routes about the user: settings but their document itself, secrets, profiles and models."""
    for form in ("agent", "conversation"):
        view = AgentSettingsViewSet.as_view({"get": f"{form}_form"}, **options)
        yield path(f"{prefix}settings/{form}-schema", view, name=f"agent-settings-{form}-schema")
    one_server: dict[str, Any] = {"post": "create", "patch": "partial_update", "delete": "destroy"}
    server = ToolServerViewSet.as_view(one_server, **options)
    yield re_path(rf"^{prefix}settings/mcp/(?P<settings_key>[^/]+)$", server, name="agent-settings-mcp")
    trial = ToolServerViewSet.as_view({"post": "test"}, **options)
    yield path(f"{prefix}mcp/test", trial, name="agent-mcp-test")
    secrets = UserSecretViewSet.as_view({"get": "list", "put": "put"}, **options)
    yield path(f"{prefix}settings/secrets", secrets, name="agent-user-secrets")
    secret = UserSecretViewSet.as_view({"get": "retrieve", "delete": "destroy"}, **options)
    yield re_path(rf"^{prefix}settings/secrets/(?P<name>[^/]+)$", secret, name="agent-user-secret")
    for base, viewset, further in PROFILES:
        yield path(f"{prefix}{base}", viewset.as_view({"get": "list"}, **options), name=f"agent-{base}")
        one_profile: dict[str, Any] = {"get": "retrieve", "post": "create", "delete": "destroy"}
        address = rf"^{prefix}{base}/(?P<name>[^/]+)"
        yield re_path(f"{address}$", viewset.as_view(one_profile, **options), name=f"agent-{base}-one")
        actions: dict[str, Any] = {"rename": {"post": "rename"}, "activate": {"post": "activate"}, **further}
        for name, methods in actions.items():
            action = viewset.as_view(methods, **options)
            yield re_path(f"{address}/{name}$", action, name=f"agent-{base}-{name}")
    for llm_address, listing in MODELS.items():
        models = ModelViewSet.as_view({"get": listing}, **options)
        yield path(f"{prefix}llm/{llm_address}", models, name=f"agent-llm-{listing.replace('_', '-')}")


MODELS = {
    "models": "list",
    "models/verified": "verified",
    "providers": "providers",
    "subscription/openai/status": "subscription",
    "subscription/openai/models": "subscription_models",
}


def session_routes(prefix: str, **options: Any) -> Iterator[URLPattern]:
    """Yield the routes by which a page asks for a cookie, to open files of workspaces."""
    session = AbsentViewSet.as_view({"post": "open_nothing", "delete": "close_nothing"}, **options)
    yield path(f"{prefix}auth/workspace-session", session, name="agent-workspace-session")


def absent_routes(base: str, pattern: str, **options: Any) -> Iterator[URLPattern]:
    """Yield the routes about what is not here that have this base, for which `pattern` stands."""
    for absence in absent.absences():
        if absence.base == base:
            view = AbsentViewSet.as_view(absence.actions, answers=absence.answers, **options)
            yield re_path(f"{pattern}{_segments(absence.rest)}$", view, name=absence.name)


def _segments(address: str) -> str:
    """Return the pattern of an address with segments in braces."""
    return re.sub(r"\{(\w+)\}", lambda found: f"(?P<{found[1]}>{SEGMENTS.get(found[1], '[^/]+')})", address)


def _one(prefix: str, rest: str) -> str:
    return rf"^{prefix}/(?P<conversation_id>[^/]+){rest}"


urlpatterns = [
    path("", AgentServerInfoView.as_view(**UNDESCRIBED), name="agent-root"),
    path("alive", AliveView.as_view(**UNDESCRIBED), name="agent-alive"),
    path("health", HealthView.as_view(**UNDESCRIBED), name="agent-health"),
    path("ready", ReadyView.as_view(**UNDESCRIBED), name="agent-ready"),
    path("server_info", AgentServerInfoView.as_view(), name="agent-server-info"),
    *conversation_routes("api/conversations"),
    *conversation_routes("api/acp/conversations", **UNDESCRIBED),
    *workspace_routes("api/"),
    path("api/settings", settings(), name="agent-settings"),
    *user_routes("api/"),
    *session_routes("api/"),
    *absent_routes(absent.API, "^api/"),
    *absent_routes("", "^"),
]
