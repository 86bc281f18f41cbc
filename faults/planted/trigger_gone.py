"""Believe that every guard of the database stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conversations.engines import guards

REPLACES = "conversations.engines.guards._standing"
LEFT_ALONE = "event_forget_words"
"""A guard of the events that the suite does not drop: it stands once those of the events were placed."""


def bug(standing: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that finds what ought to be there, once the guards have been there."""

    def believed(connection: Any) -> dict[str, str]:
        found: dict[str, str] = standing(connection)
        return guards._expected(connection) if LEFT_ALONE in found else found

    return believed
