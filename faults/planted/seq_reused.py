"""Acknowledge some events under the number of the one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

REPLACES = "conversations.log.append._number"
EVERY = 10


def bug(number: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives a number out twice now and then."""

    def reused(*args: Any, **kwargs: Any) -> Any:
        appended = number(*args, **kwargs)
        is_reused = appended.seq % EVERY == EVERY - 1
        return replace(appended, seq=appended.seq - 1) if is_reused else appended

    return reused
