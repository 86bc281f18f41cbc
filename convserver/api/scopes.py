"""What a token needs for each operation of the REST doors: declared at the view (docs/protocol.md, Scopes).

A view names its `needs`, and a handler with others is decorated by `requires`. A route without any is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import cache
from typing import Any, NamedTuple, TypeVar

from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from sessions_app.identity import scopes
from sessions_app.models import Scope

F = TypeVar("F", bound=Callable[..., Any])


class Reach(Enum):
    """Which conversations an operation can reach: the token of one conversation may reach no other."""

    NAMED = auto()
    """The one in the address; without any in the address, all."""
    ALL = auto()
    """Others beside the one in the address."""
    LISTS = auto()
    """A read returns a list that contains only the token's conversation; a change needs a token for all
    conversations."""
    QUERY = auto()
    """The one in the query; without any, all."""


class Needs(NamedTuple):
    """The scopes for safe methods and for all others; None for none."""

    read: Scope | None
    write: Scope | None
    reach: Reach = Reach.NAMED

    @property
    def of_all(self) -> Needs:
        """The same for an operation that reaches other conversations."""
        return self._replace(reach=Reach.ALL)

    @property
    def of_lists(self) -> Needs:
        """The same for lists."""
        return self._replace(reach=Reach.LISTS)

    @property
    def of_query(self) -> Needs:
        """The same where the query may name a conversation."""
        return self._replace(reach=Reach.QUERY)

    def scope(self, method: str) -> Scope | None:
        """Return the scope for a method."""
        return self.read if method in SAFE_METHODS else self.write


OPEN = Needs(None, None)
WRITES = Needs(Scope.READ, Scope.WRITE)
RUNS = Needs(Scope.READ, Scope.RUN)
"""What speaks to the agent or steers it. On the OpenHands wires a new conversation starts its agent."""
OF_THE_USER = Needs(Scope.ADMIN, Scope.ADMIN)
"""Keys, secrets, settings and what operators watch: reading them needs the scope as well."""
BY_ANSWER = Needs(None, Scope.ADMIN, Reach.ALL)
"""The view asks, since what it answers depends on the scopes."""
BY_FRAME = Needs(Scope.READ, None)
"""Each frame needs the scope of its type, as on the socket."""


def requires(needs: Needs) -> Callable[[F], F]:
    """Declare what one handler needs, in the place of its view's `needs`."""

    def declare(handler: F) -> F:
        handler.needs = needs  # type: ignore[attr-defined]
        return handler

    return declare


class ScopePermission(BasePermission):
    """Lets a token do what its scopes say. Raise ScopeTooSmall."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Check the scopes of the request's token; refuse all requests to a view that declares no needs."""
        method = request.method or "GET"
        needs = _declared(view, getattr(view, "action_map", None) or {}, method)
        if needs is None:
            return False
        if scopes.token_of(request.user) is None or needs == OPEN:
            return True
        if (scope := needs.scope(method)) is not None:
            scopes.require(request.user, scope)
        if not _is_of_one(needs, request, view.kwargs):
            scopes.require_all_conversations(request.user)
        return True


def _declared(view: Any, actions: dict[str, str], method: str) -> Needs | None:
    """Return what a view, or its class, declares for a method."""
    name = actions.get(method.lower(), method.lower())
    found: Needs | None = getattr(getattr(view, name, None), "needs", getattr(view, "needs", None))
    return found


def _is_of_one(needs: Needs, request: Request, kwargs: dict[str, Any]) -> bool:
    """Return whether a token of one conversation may make the request.

    Return it as far as the request's address, query or method tells.
    """
    match needs.reach:
        case Reach.QUERY:
            return bool(request.query_params.get("conversation"))
        case Reach.LISTS:
            return request.method in SAFE_METHODS
        case Reach.ALL:
            return False
    return "conversation_id" in kwargs


def needed(route: str, method: str) -> Scope | None:
    """Return the scope for a method of the route with this name; None where each frame names it."""
    # Several addresses may share a name, such as one for each spelling of a path.
    for callback in _callbacks()[route]:
        view = getattr(callback, "cls", None) or getattr(callback, "view_class", None)
        needs = _declared(view, getattr(callback, "actions", None) or {}, method)
        if needs is not None:
            return needs.scope(method)
    raise LookupError(f"The route {route} declares no scopes.")


@cache
def _callbacks() -> dict[str, list[Callable[..., Any]]]:
    # Kept, because this walks all routes, and they stay as they are.
    found: dict[str, list[Callable[..., Any]]] = {}
    for pattern in _patterns(get_resolver()):
        if pattern.name:
            found.setdefault(pattern.name, []).append(pattern.callback)
    return found


def _patterns(resolver: URLResolver) -> Iterator[URLPattern]:
    for each in resolver.url_patterns:
        if isinstance(each, URLResolver):
            yield from _patterns(each)
        else:
            yield each
