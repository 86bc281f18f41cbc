"""The outcome of an append that was made before its view was asked: the view tells it, and appends nothing.

So each door words its failures in one place, its view.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from django.http import HttpRequest
from rest_framework.request import Request

from convserver.event_loop import in_loop

P = ParamSpec("P")
T = TypeVar("T")

OUTCOME = "convserver.append"
"""The member of the ASGI scope that holds the outcome."""
COUNTED = "convserver.counted"
"""The member that is there once the request was counted for its user's quota."""
FAILURE = "convserver.failure"
"""The member that holds the failure of the database with which the request is to be answered."""


class Outcome(NamedTuple):
    """What an append returned or raised."""

    value: Any = None
    error: Exception | None = None
    is_unknown: bool = False
    """Whether the append may have been stored, or not."""


def outcome_of(request: Request) -> Outcome | None:
    """Return the outcome of this request's append; None if it was not made yet."""
    return cast(Outcome | None, _scope_of(request).get(OUTCOME))


def is_counted(request: Request) -> bool:
    """Return whether the request was counted for its user's quota before its view was asked."""
    return COUNTED in _scope_of(request)


def is_unknown(request: HttpRequest) -> bool:
    """Return whether this request's append may have been stored, or not."""
    # Whatever else fails then, the answer must not say that nothing was stored.
    outcome: Outcome | None = getattr(request, "scope", {}).get(OUTCOME)
    return outcome is not None and outcome.is_unknown


def _scope_of(request: Request) -> dict[str, Any]:
    return getattr(request._request, "scope", {})


def in_loop_once(request: Request, append: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the append of a request on the event loop, unless it was made: then return or raise its outcome."""
    outcome = outcome_of(request)
    if outcome is None:
        return in_loop(append, *args, **kwargs)
    if outcome.error is not None:
        raise outcome.error
    return cast(T, outcome.value)
