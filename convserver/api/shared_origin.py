"""Addresses that both wires have: the credentials and the content decide which is meant (spec V1 §2.8)."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponseBase
from django.urls import path, re_path

from conversations.payloads import bounds, jsontext
from convserver.api.v0.conversations import V0ConversationViewSet
from convserver.api.v0.events import V0EventViewSet
from convserver.api.v0.settings.views import V0SettingsViewSet
from convserver.api.v0.workspace import V0WorkspaceViewSet
from convserver.api.v1.agent import absent
from convserver.api.v1.agent.git import AgentGitViewSet
from convserver.api.v1.agent.urls import (
    CHANGE_ACTIONS,
    UNDESCRIBED,
    absent_routes,
    conversation_routes,
    events,
    free_routes,
    many,
    one,
    session_routes,
    settings,
    user_routes,
    workspace_routes,
)
from convserver.api.v1.authentication import opened_by_key
from convserver.serving.clients import found_client
from sessions_app.capacity.parsing import in_turn_from_thread

View = Callable[..., HttpResponseBase]

_ROLE = "role"
_TELLING_MEMBERS = frozenset({"agent", "workspace", "tags"})
"""Members of a body that starts or changes a V1 conversation; V0 has none of them."""


def either(v0_view: View, agent_view: View, *, by: Callable[[HttpRequest], bool]) -> View:
    """Return a view that passes a request to the agent face or, documented as this, to V0."""

    def chosen(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        view = agent_view if by(request) else v0_view
        return view(request, *args, **kwargs)

    # Django and the API document read the attributes of a view.
    return update_wrapper(chosen, v0_view)


def _is_for_agent_face(request: HttpRequest) -> bool:
    if opened_by_key(request) is not None:
        return True
    if request.method == "GET":
        # V0 has no batch at this address.
        return "ids" in request.GET or _is_of_agent_web_client(request)
    return request.method in ("POST", "PATCH") and _is_body_of_v1(request)


def _is_of_agent_web_client(request: HttpRequest) -> bool:
    """Return whether agent canvas reads something.

    It names the content type of each request, also of one without a body, and its key where it has one; else
    the browser says that a page asks. V0's web client, to whose requests a proxy may add a key, says what it
    accepts.
    """
    headers = request.headers
    is_by_page = "X-Session-API-Key" in headers or "Sec-Fetch-Mode" in headers
    is_of_v0 = "text/plain" in headers.get("Accept", "")
    return bool(headers.get("Content-Type")) and is_by_page and not is_of_v0


def _is_body_of_v1(request: HttpRequest) -> bool:
    """Look at the body, which the view reads again from its beginning."""
    try:
        body = request.body
    except RequestDataTooBig:  # nothing was read, and the view will report this
        return False
    # Most bodies are V0's, and to look for a few words costs less than to parse each.
    if not any(name.encode() in body for name in _TELLING_MEMBERS | {_ROLE}):
        return False
    try:
        text = body.decode()
        return in_turn_from_thread(found_client(request), bounds.is_light(text), _has_v1_members, text)
    except ValueError:
        return False


def _has_v1_members(text: str) -> bool:
    """Return whether this is a start or a message of V1; an event of V0 has an `action` and no `role`."""
    bounds.require_bounded(text)
    # A body with more is none that starts a conversation.
    members_max = 1_000
    members = jsontext.members(text, at_most=members_max)
    return not _TELLING_MEMBERS.isdisjoint(members) or (_ROLE in members and "action" not in members)


def _is_for_agent_settings(request: HttpRequest) -> bool:
    """Return whether a request is for the agent face, which has PATCH; V0 has POST, and both have GET."""
    if request.method != "GET":
        return request.method == "PATCH"
    return "X-Expose-Secrets" in request.headers or _is_of_agent_web_client(request)


_ONE = r"^conversations/(?P<conversation_id>[^/]+)"

urlpatterns = [
    *free_routes("conversations", **UNDESCRIBED),
    *conversation_routes("acp/conversations", **UNDESCRIBED),
    *workspace_routes("", **UNDESCRIBED),
    *user_routes("", **UNDESCRIBED),
    *session_routes("", **UNDESCRIBED),
    *absent_routes(absent.API, "^", **UNDESCRIBED),
    path(
        "settings",
        either(
            V0SettingsViewSet.as_view({"get": "retrieve", "post": "change"}),
            settings(),
            by=_is_for_agent_settings,
        ),
        name="v0-settings",
    ),
    path(
        "conversations",
        either(
            V0ConversationViewSet.as_view({"get": "list", "post": "create"}), many(), by=_is_for_agent_face
        ),
        name="v0-conversations",
    ),
    re_path(
        rf"{_ONE}$",
        either(
            V0ConversationViewSet.as_view(
                {"get": "retrieve", "patch": "partial_update", "delete": "destroy"}
            ),
            one(),
            by=_is_for_agent_face,
        ),
        name="v0-conversation",
    ),
    re_path(
        rf"{_ONE}/events$",
        either(V0EventViewSet.as_view({"get": "list", "post": "create"}), events(), by=_is_for_agent_face),
        name="v0-events",
    ),
    *(
        re_path(
            rf"{_ONE}/git/{name}$",
            either(
                V0WorkspaceViewSet.as_view(methods), AgentGitViewSet.as_view(methods), by=_is_for_agent_face
            ),
            name=f"v0-git-{name}",
        )
        for name, methods in CHANGE_ACTIONS.items()
    ),
]

behind_v0 = [*absent_routes(absent.ONE, f"{_ONE}/", **UNDESCRIBED)]
"""Of these V0 has some itself, which comes first."""
