"""What fails while conversations are deleted and purged: it is logged, and stops nothing else."""

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


class Failures:
    """The failures of one round or one command."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Exception]] = []
        """What failed, such as the id of a conversation, and how."""

    @contextmanager
    def noted(self, kind: str, name: str) -> Iterator[None]:
        """Note what fails inside, and go on; raise it if the database is gone, since all else would fail too.

        `kind` and `name` say what it was about in the log: `conversation="5d1e…"`.
        """
        try:
            yield
        except Exception as error:
            self.add(error, kind, name)
            if not connection.is_usable():
                raise

    def add(self, error: Exception, kind: str, name: str) -> None:
        """Log a failure and keep it."""
        outage.failed(error, **{kind: name})
        self.found.append((name, error))
