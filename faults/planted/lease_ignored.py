"""Take a conversation whose loop lives in another process."""

from __future__ import annotations

from collections.abc import Callable

REPLACES = "sessions_app.models.loops.AgentLoop.is_held"


def bug(is_held: Callable[..., bool]) -> Callable[..., bool]:
    """Return a function that finds no lease valid."""
    return lambda loop, *args, **options: False
