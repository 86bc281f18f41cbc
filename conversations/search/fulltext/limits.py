"""The time limit of a search statement: the database ends a statement that takes longer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from django.db import OperationalError, connection
from psycopg.errors import QueryCanceled

from conversations.exceptions import ConversationError

STATEMENT_S = 3.0  # on SQLite, which works in this process, of the processor's time
STEPS = 1_000  # steps of SQLite's virtual machine between two looks at the time


class SearchTooBroad(ConversationError):
    """The query takes too long; a narrower one may not."""

    code: ClassVar[str] = "search_too_broad"


@contextmanager
def limited() -> Iterator[str]:
    """End a statement of this block that takes longer than STATEMENT_S. Raise SearchTooBroad then.

    Yield the prefix of the statement's text; the results are in the cursor's last set.
    """
    clock = _Clock(time.thread_time() + STATEMENT_S)
    try:
        if connection.vendor == "postgresql":
            # In one text with the query it needs no transaction and no round trip of its own.
            yield f"SET LOCAL statement_timeout = {max(1, round(STATEMENT_S * 1000))}; "
        else:
            with _watched_by(clock):
                yield ""
    except OperationalError as error:
        if not clock.has_ended_it and not isinstance(error.__cause__, QueryCanceled):
            raise
        raise SearchTooBroad(
            "This search takes too long. Narrow it: add a rarer word or a filter, or leave out common words."
        ) from error


class _Clock:
    """Tells SQLite when to end a statement."""

    def __init__(self, until: float) -> None:
        self._until = until
        self.has_ended_it = False

    def is_over(self) -> bool:
        self.has_ended_it = time.thread_time() > self._until
        return self.has_ended_it


@contextmanager
def _watched_by(clock: _Clock) -> Iterator[None]:
    connection.ensure_connection()
    engine = connection.connection
    engine.set_progress_handler(clock.is_over, STEPS)
    try:
        yield
    finally:
        engine.set_progress_handler(None, 0)
