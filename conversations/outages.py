"""Logging failures that repeat in a few lines: the beginning, the count, the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import structlog
from django.db import Error as DatabaseProblem
from redis.exceptions import RedisError

from conversations.exceptions import ConversationError

SUMMARY_S = 60.0  # the shortest time between two lines, with the count, about a repeated failure
KINDS_MAX = 20  # this many kinds of failure are counted one by one; all others count as one kind

# Failures whose text says all there is to know; of any other the log shows where it was raised.
EXPLAINED = (DatabaseProblem, RedisError, ConversationError, OSError, TimeoutError)


E = TypeVar("E", bound=BaseException)


@dataclass(slots=True)
class _Kind:
    logged_at: float
    unlogged: int = 0


class Outage:
    """An operation that can fail repeatedly; thread-safe.

    `failing` and `working` are the log's sentences for the first failure and for the first success after it:
    "Appends failed", "Appends work again". Without `working` the end is not logged.
    """

    def __init__(self, logger_name: str, failing: str, working: str = "") -> None:
        self._logger = structlog.stdlib.get_logger(logger_name)
        self._failing = failing
        self._working = working
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}
        self._began_at = 0.0
        self._count = 0

    def failed(self, error: BaseException, **facts: object) -> None:
        """Count a failure; log it if its kind is new or was last logged SUMMARY_S ago.

        `facts` describe this failure, such as `conversation="5d1e…"`. Of an exception group, the first is
        logged.
        """
        error = first_of(error)
        now = time.monotonic()
        with self._lock:
            if self._count == 0:
                self._began_at = now
            self._count += 1
            # Not its text, which may hold numbers that differ each time.
            kind = f"{type(error).__name__} {getattr(error.__cause__, 'sqlstate', None)}"
            repeated = self._repeated(kind, now)
        if repeated is None:
            return
        facts["error"] = str(error).strip() or type(error).__name__
        if repeated:
            facts["unlogged_before"] = repeated
        elif not isinstance(error, EXPLAINED):
            facts["exc_info"] = error
        self._logger.warning(self._failing, **facts)

    @contextmanager
    def counted(self, **facts: object) -> Iterator[None]:
        """Count failures of the block; a success ends the outage."""
        try:
            yield
        except Exception as error:
            self.failed(error, **facts)
        else:
            self.worked()

    def worked(self) -> None:
        """Note a success; log the end of the outage if there was one."""
        if self._count == 0:  # no lock: this runs on every success
            return
        with self._lock:
            count, seconds = self._count, time.monotonic() - self._began_at
            self._count = 0
            self._kinds.clear()
        if count and self._working:
            self._logger.info(self._working, seconds=round(seconds, 1), failures=count)

    def _repeated(self, kind: str, now: float) -> int | None:
        """Return how often this kind went unlogged since the last line; None if it must not be logged now."""
        if kind not in self._kinds and len(self._kinds) >= KINDS_MAX:
            kind = ""
        known = self._kinds.get(kind)
        if known is not None and now < known.logged_at + SUMMARY_S:
            known.unlogged += 1
            return None
        self._kinds[kind] = _Kind(now)
        return known.unlogged if known is not None else 0


class Seldom(logging.Filter):
    """Passes each sort of message once in SUMMARY_S: a pool logs every connection that it drops."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, sort = time.monotonic(), str(record.msg)
        if now < self._logged_at.get(sort, -SUMMARY_S) + SUMMARY_S:
            return False
        if len(self._logged_at) >= KINDS_MAX:
            self._logged_at.clear()
        self._logged_at[sort] = now
        return True


def first_of(error: E) -> E | Exception:
    """Return the first failure of an exception group."""
    first: E | Exception = error
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return first
