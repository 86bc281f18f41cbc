"""Acknowledge what is committed before it is safe from a power cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

REPLACES = "django.db.backends.base.base.BaseDatabaseWrapper.connect"
STATEMENTS = {"sqlite": "PRAGMA synchronous = NORMAL", "postgresql": "SET synchronous_commit = off"}
"""With either, an engine stays whole in a power cut, and loses what was committed last."""


def bug(connect: Callable[[BaseDatabaseWrapper], None]) -> Callable[[BaseDatabaseWrapper], None]:
    """Return a function that connects so."""

    def connected(self: BaseDatabaseWrapper) -> Any:
        connect(self)
        self.connection.execute(STATEMENTS[self.vendor])

    return connected
