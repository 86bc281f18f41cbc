"""Compute the digest of each event by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REPLACES = "conversations.log.append.chain"


def bug(chain: Callable[..., str]) -> Callable[..., str]:
    """Return a function that leaves the digest before out."""

    def alone(head_digest: str, **event: Any) -> str:
        return chain("", **event)

    return alone
