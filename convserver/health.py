"""The health probe: whether the server can store something, asked of the database within a time limit."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from copy import deepcopy
from typing import Any

import psycopg
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines import failures
from conversations.models import WriteProbe
from conversations.readiness import readiness

ANSWER_WITHIN_S = 1.7  # after this long without an answer of the database, the probe reports that
LOCK_WAIT_S = 0.5
POOL_WAIT_S = 1.0  # how long the probe waits for one of the connections of all others
# A lock held by others counts as a failure after this long.
LOCKED_FOR_S = 10.0
# More than the connection caches, so that SQLite writes it to the disk before it is rolled back.
FILLER_CHARACTERS = 64 * 1024

_WRITE = f"INSERT INTO {WriteProbe._meta.db_table} (filler) VALUES (%s)"  # noqa: S608 - a constant

logger = logging.getLogger(__name__)


class Health:
    """Checks the database, one check at a time for all callers, over a connection of its own.

    A database that hangs blocks one thread, and neither those for requests nor the pool.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._look: Future[str | None] | None = None
        self._connection: BaseDatabaseWrapper | None = None
        self._told: str | None = None
        self._locked_since: float | None = None

    def problem(self) -> str | None:
        """Return what is wrong, as a sentence; None if something can be stored."""
        try:
            found = self._begun().result(timeout=ANSWER_WITHIN_S)
        except TimeoutError:
            found = failures.TOO_SLOW
        with self._lock:
            has_changed, self._told = found != self._told, found
        if found and has_changed:
            logger.warning("The server is not healthy: %s", found)
        elif has_changed:
            logger.info("The server is healthy again.")
        return found

    def forget(self) -> None:
        """Close the connection; the next check opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begun(self) -> Future[str | None]:
        with self._lock:
            if self._look is None or self._look.done():  # else all callers wait for the check that runs
                self._look = Future()
                # A daemon: the process must not wait for it when it ends.
                threading.Thread(target=self._run, args=(self._look,), name="health", daemon=True).start()
            return self._look

    def _run(self, look: Future[str | None]) -> None:
        try:
            look.set_result(self._found())
        except Exception as error:
            logger.exception("The health of the database could not be looked at")
            look.set_result(failures.sentence(error))

    def _found(self) -> str | None:
        # A probe with a connection of its own would not notice that no one else gets one.
        if self._connection is not None and (refused := _refused()):
            return refused
        is_kept = self._connection is not None
        connection = self._connection = self._connection or _own_connection()
        try:
            readiness.look(connection)
            _write_and_take_back(connection)
        except failures.FAILURES as error:
            has_ended = is_kept and getattr(connection.connection, "closed", False)  # PostgreSQL
            self.forget()
            if has_ended:
                return self._found()  # that says nothing of a new one: it was idle meanwhile
            if failures.is_locked(error):
                return readiness.refusal or self._locked_for_long()
            self._locked_since = None
            logger.debug("The health probe failed", exc_info=error)
            return failures.sentence(error, connection)
        self._locked_since = None
        return readiness.refusal

    def _locked_for_long(self) -> str | None:
        """Report a lock once every check since LOCKED_FOR_S has found one.

        A short lock is another writer, so the database can be written.
        """
        now = time.monotonic()
        if self._locked_since is None:
            self._locked_since = now
        return failures.LOCKED if now - self._locked_since >= LOCKED_FOR_S else None


def _write_and_take_back(connection: BaseDatabaseWrapper) -> None:
    """Write a row and roll it back. Raise the database's errors."""
    begin = "BEGIN IMMEDIATE" if connection.vendor == "sqlite" else "BEGIN"
    with connection.cursor() as cursor:
        cursor.execute(begin)
        cursor.execute(_WRITE, ["x" * FILLER_CHARACTERS])
        cursor.execute("ROLLBACK")  # after an error the connection is closed


def _refused() -> str | None:
    """Report it if no one else gets a connection while the probe still has its own.

    A pool that is refused more connections may well do with those it has.
    """
    pool = getattr(connections["default"], "pool", None)  # PostgreSQL
    if pool is None or pool.refusal is None:
        return None
    refusal: Exception = pool.refusal
    until = time.monotonic() + POOL_WAIT_S
    while (left_s := until - time.monotonic()) > 0:
        try:
            with pool.connection(timeout=left_s) as pooled:
                pooled.execute("SELECT")
        except psycopg.OperationalError as error:  # of a session that has ended, it says nothing of the next
            refusal = error
        else:
            return None
    return failures.sentence(OperationalError(str(refusal)))


def _own_connection() -> BaseDatabaseWrapper:
    """Return a connection outside the pool, with short time limits."""
    default: Any = connections["default"]
    parameters = deepcopy({**default.settings_dict, "OPTIONS": {}})
    options = {key: value for key, value in default.settings_dict["OPTIONS"].items() if key != "pool"}
    if default.vendor == "sqlite":
        options["timeout"] = LOCK_WAIT_S
        options["init_command"] += " PRAGMA cache_size=4;"
    else:
        limit_ms = int(ANSWER_WITHIN_S * 1000)
        bounds = f"-c statement_timeout={limit_ms} -c lock_timeout={int(LOCK_WAIT_S * 1000)}"
        options |= {"connect_timeout": 2, "options": f"{options.get('options', '')} {bounds}"}
    connection: BaseDatabaseWrapper = type(default)({**parameters, "OPTIONS": options}, alias="health")
    connection.inc_thread_sharing()  # one thread after the other
    return connection


health = Health()  # the probe of this process
