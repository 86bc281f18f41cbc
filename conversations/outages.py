"""Failures that may repeat, in a few lines of the log: that one began, how often it came, that it is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import Error as DatabaseProblem
from redis.exceptions import RedisError

from conversations.exceptions import ConversationError

SUMMARY_S = 60.0
"""A failure that goes on repeating is logged again, with its count, this often at most."""
KINDS_MAX = 20
"""At most this many kinds of failure are told apart; the others count as one."""

EXPLAINED = (DatabaseProblem, RedisError, ConversationError, OSError, TimeoutError)
"""Failures whose text says all there is to know; of any other the log shows where it was raised."""


@dataclass(slots=True)
class _Kind:
    """One kind of failure while it lasts."""

    logged_at: float
    unlogged: int = 0


class Outage:
    """One thing that can fail again and again; thread-safe.

    `what` is the beginning of a sentence that the error ends: "The states could not be read".
    """

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}
        self._began_at = 0.0
        self._count = 0

    def failed(self, error: BaseException, *, of: str = "") -> None:
        """Count a failure; log it if its kind is new or was last logged SUMMARY_S ago.

        `of` says what failed this time: "conversation 5d1e…".
        """
        now = time.monotonic()
        with self._lock:
            if self._count == 0:
                self._began_at = now
            self._count += 1
            repeated = self._repeated(_kind_of(error), now)
        if repeated is None:
            return
        what = f"{self._what} ({of})" if of else self._what
        text = str(error).strip() or type(error).__name__
        trace = None if isinstance(error, EXPLAINED) else error
        if repeated:
            self._logger.warning("%s, and %d times before that: %s", what, repeated, text)
        else:
            self._logger.warning("%s: %s", what, text, exc_info=trace)

    @contextmanager
    def counted(self, *, of: str = "") -> Iterator[None]:
        """Count what fails inside and end it; what works ends the outage."""
        try:
            yield
        except Exception as error:
            self.failed(error, of=of)
        else:
            self.worked()

    def worked(self) -> None:
        """Note a success; log the end of the outage if there was one."""
        if self._count == 0:  # without the lock: this is on the way of everything that works
            return
        with self._lock:
            count, seconds = self._count, time.monotonic() - self._began_at
            self._count = 0
            self._kinds.clear()
        if count:
            self._logger.warning("%s: over after %.1f s and %d failures", self._what, seconds, count)

    def _repeated(self, kind: str, now: float) -> int | None:
        """Return how often this kind was not logged since it last was; None if it is not to be logged now."""
        if kind not in self._kinds and len(self._kinds) >= KINDS_MAX:
            kind = ""
        known = self._kinds.get(kind)
        if known is not None and now < known.logged_at + SUMMARY_S:
            known.unlogged += 1
            return None
        self._kinds[kind] = _Kind(now)
        return known.unlogged if known is not None else 0


class Seldom(logging.Filter):
    """Let each sort of message pass once in SUMMARY_S: a pool tells of every connection that it drops."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether the record is to be logged."""
        now, sort = time.monotonic(), str(record.msg)
        if now < self._logged_at.get(sort, -SUMMARY_S) + SUMMARY_S:
            return False
        if len(self._logged_at) >= KINDS_MAX:
            self._logged_at.clear()
        self._logged_at[sort] = now
        return True


def first_of(error: Exception) -> Exception:
    """Return what failed first of what failed together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _kind_of(error: BaseException) -> str:
    """Return what tells one failure from another, whatever numbers its text holds."""
    return f"{type(error).__name__} {getattr(error.__cause__, 'sqlstate', None)}"
