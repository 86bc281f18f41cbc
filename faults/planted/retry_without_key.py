"""Carry a repeated request out again, whatever its Idempotency-Key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REPLACES = "sessions_app.idempotency.answered_once"


def bug(answered_once: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that creates each time."""
    return lambda key, sent, create: create()
