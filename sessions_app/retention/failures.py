"""Failures while conversations are deleted and purged: logged, without stopping the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from conversations.outages import Outage

outage = Outage(
    "sessions_app.retention",
    "Deleted conversations could not be purged",
    "Deleted conversations are purged again",
)


class RetentionFailures:
    def __init__(self) -> None:
        # The failed objects, such as the id of a conversation, and their errors.
        self.found: list[tuple[str, Exception]] = []

    @contextmanager
    def noted(self, kind: str, name: str) -> Iterator[None]:
        """Record a failure of the block, and continue; raise it if the database is gone.

        `kind` and `name` are its subject in the log: `conversation="5d1e…"`.
        """
        try:
            yield
        except Exception as error:
            self.add(error, kind, name)
            if not connection.is_usable():
                raise

    def add(self, error: Exception, kind: str, name: str) -> None:
        outage.failed(error, **{kind: name})
        self.found.append((name, error))
