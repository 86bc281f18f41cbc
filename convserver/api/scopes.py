"""The scope that each operation of the REST doors needs, by the route's name (docs/protocol.md, Scopes)."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from sessions_app.identity import scopes
from sessions_app.models import Scope

_ADMIN_ROUTES = frozenset(
    {
        "native-token-list",
        "native-token-detail",
        "native-conversation-rotate-key",
        "v0-settings",
        "v0-reset-settings",
        "v0-secrets",
        "v0-secret",
        "v0-add-git-providers",
        "v0-unset-provider-tokens",
        "agent-secrets",
        "agent-settings",
        "agent-settings-mcp",
        "agent-mcp-test",
        "agent-user-secrets",
        "agent-user-secret",
        *(f"agent-profiles{each}" for each in ("", "-one", "-rename", "-activate", "-validate")),
        *(f"agent-agent-profiles{each}" for each in ("", "-one", "-rename", "-activate", "-materialize")),
        *(f"app-{each}" for each in ("settings", "agent-form", "conversation-form")),
        *(f"app-profile{each}" for each in ("s", "", "-activate", "-rename")),
        *(f"app-{each}" for each in ("secret-search", "secrets", "secret", "git-tokens")),
        "app-sandbox-secrets",
        "app-sandbox-secret",
        "metrics",
    }
)
"""Keys, secrets, settings and what operators watch: reading them needs the scope as well."""
_RUN_ROUTES = frozenset(
    {
        "v0-conversations",  # on the OpenHands wires a new conversation starts its agent
        "agent-conversations",
        "app-conversations",
        "app-stream-start",
        "v0-start",
        "v0-stop",
        "v0-message",
        "v0-events",
        "native-conversation-run",
        "native-conversation-pause",
        "native-conversation-stop",
        "native-conversation-confirm",
        "agent-run",
        "agent-pause",
        "agent-interrupt",
        "agent-condense",
        "agent-ask-agent",
        "agent-events",
        "agent-events-respond-to-confirmation",
        "agent-confirmation-policy",
        "agent-security-analyzer",
        "agent-switch-llm",
        "agent-switch-profile",
        "agent-children",
        "app-send-message",
        "app-switch-profile",
        "app-switch-acp-model",
        "app-pending-messages",
        "app-sandboxes",
        "app-sandbox-pause",
        "app-sandbox-resume",
    }
)
"""What speaks to the agent or steers it, where it is not only read."""
_BY_FRAME = "native-events"
"""Each frame needs the scope of its type, as on the socket."""
_OPEN = frozenset({"schema", "docs", "app-web-client-config"})
_LISTS = frozenset(
    {
        "v0-conversations",
        "native-conversation-list",
        "native-labels",
        "agent-conversations",
        "agent-conversations-search",
        "agent-conversations-count",
        "app-search",
        "app-count",
        "app-conversations",
    }
)
"""Lists that show the token of one conversation that one."""
_MANY = frozenset(
    {
        "app-switch-profile",
        "agent-fork",
        "agent-children",
        "agent-switch-profile",
        "app-pending-messages",
        "native-conversation-fork",
    }
)
"""Routes below a conversation that reach others."""


class ScopePermission(BasePermission):
    """Lets a token do what its scopes say. Raise ScopeTooSmall."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Check the token of the request, if it has one."""
        match = request.resolver_match
        name = (match.url_name if match else None) or ""
        if scopes.token_of(request.user) is None or name in _OPEN:
            return True
        scope = needed(name, request.method or "GET")
        if scope is not None:
            scopes.require(request.user, scope)
        if not _is_of_one(request, name, match.kwargs if match else {}):
            scopes.require_all_conversations(request.user)
        return True


def needed(route: str, method: str) -> Scope | None:
    """Return the scope that a route needs; None where each frame says it."""
    if route in _ADMIN_ROUTES:
        return Scope.ADMIN
    if method in SAFE_METHODS:
        return Scope.READ
    if route == _BY_FRAME:
        return None
    return Scope.RUN if route in _RUN_ROUTES else Scope.WRITE


def _is_of_one(request: Request, route: str, kwargs: dict[str, Any]) -> bool:
    """Say whether a request is about one conversation, which the access to it decides, or a list of them."""
    if route == "native-search":
        return bool(request.query_params.get("conversation"))
    if route in _LISTS:
        return request.method in SAFE_METHODS
    return "conversation_id" in kwargs and route not in _MANY
