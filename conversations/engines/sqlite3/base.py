"""The SQLite backend of the settings; Django looks for it in a module of this name."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from django.db import Error, OperationalError
from django.db.backends.sqlite3 import base
from django.db.utils import DatabaseErrorWrapper
from django.utils.functional import cached_property

from conversations import counts
from conversations.counts import Counted
from conversations.engines import lost_commits
from conversations.engines.damaged_text import REPLACED
from conversations.engines.lost_commits import LostCommit
from conversations.engines.sqlite3 import files, marks, settled_logs, turns
from conversations.engines.sqlite3.turns import WriteSlots

WAIT_S = 5  # the driver's wait for a lock, unless the settings have another
# A shorter wait for the slot is not taken off the wait for another process's lock.
SHORT_MS = 50
# The driver reports these as a DatabaseError, as if a statement were at fault.
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# After these errors a new connection may work where this one cannot.
SPENT = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, *DAMAGED}
# After these errors the whole transaction may be in the write-ahead log: a failed sync is one of them. This
# process does not see it there. The next start does, unless a later commit was written over it.
COMMITTED_PERHAPS = {sqlite3.SQLITE_IOERR}


class CheckedConnection(sqlite3.Connection):
    """Reports a commit only if it is in the file at the configured path."""

    opened: files.OpenedFiles | None = None
    is_spent = False
    # Opened while the file was read-only: the connection stays so, whatever becomes of the file.
    is_read_only = False
    slots: WriteSlots | None = None  # of the threads that write to this file
    wait_ms = 0  # the longest wait of a statement for its slot and for the lock
    is_locked_out = False  # another program kept the lock for longer than the wait
    _has_slot = _is_late = _is_checkpoint = False

    @contextmanager
    def writing(self, *, is_checkpoint: bool) -> Iterator[None]:
        """Run a statement in this thread's slot, which lasts until the end of the transaction it may begin.

        Raise sqlite3.OperationalError if there is no slot in time.
        """
        self._is_checkpoint = is_checkpoint
        try:
            self._take_slot()
            yield
        finally:
            if self._is_late:
                self._is_late = False
                self.wait_at_most(self.wait_ms)
            self.leave_ended_slot()

    def leave_ended_slot(self) -> None:
        """Free the slot for the next thread if the transaction has ended, by any statement."""
        if not self.in_transaction:
            self._leave_slot()

    def _take_slot(self) -> None:
        """Wait until the earlier transactions of other threads are over."""
        if self.slots is None or self._has_slot:
            return
        began = time.monotonic()
        self._has_slot = self.slots.take(self.wait_ms / 1000)
        if not self._has_slot:
            # The lock itself may be free: a checkpoint takes a slot, but no lock that keeps writers out.
            raise locked()
        waited_ms = round((time.monotonic() - began) * 1000)
        if waited_ms > SHORT_MS:  # the wait for another process's lock is part of the same
            self._is_late = True
            self.wait_at_most(max(0, self.wait_ms - waited_ms))

    def _leave_slot(self) -> None:
        if self._has_slot and self.slots is not None:
            self._has_slot = False
            self.slots.leave(is_checkpoint=self._is_checkpoint, is_locked_out=self.is_locked_out)
            self.is_locked_out = False

    def wait_at_most(self, wait_ms: int) -> None:
        """Limit SQLite's wait for another process's lock."""
        self.execute(f"PRAGMA busy_timeout = {wait_ms}").close()

    def require_file(self) -> None:
        """Raise FileGone if the file is not the one that was opened."""
        if self.opened is not None:
            self.opened.require()

    def commit(self) -> None:
        """Commit, and check the file before and afterwards.

        Raise FileGone if nothing was committed, CommittedAway if it was, into a file that was then removed,
        and an error of COMMITTED_PERHAPS if it is unknown.
        """
        if self.in_transaction:
            self.require_file()
        try:
            super().commit()
        except sqlite3.Error as error:
            if _code(error) in COMMITTED_PERHAPS:
                self.is_spent = True
            else:
                self.note(error)
            raise
        self._leave_slot()
        self.require_file_of_commit()

    def require_file_of_commit(self) -> None:
        """Raise CommittedAway if the file of this commit is no longer the one that was opened."""
        try:
            self.require_file()
        except files.FileGone as error:
            raise files.CommittedAway(str(error)) from error

    def rollback(self) -> None:
        try:
            super().rollback()
        finally:
            self._leave_slot()

    def close(self) -> None:
        self.opened = None
        try:
            super().close()
        finally:
            self._leave_slot()

    def note(self, error: sqlite3.Error) -> None:
        """Note whether the connection has become useless. Raise FileGone if that is the reason."""
        if _code(error) in SPENT:
            self.is_spent = True
            self.require_file()


def locked() -> sqlite3.OperationalError:
    """Return SQLite's error for a lock that was not free in time."""
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_BUSY, "SQLITE_BUSY"
    return error


class CheckedCursor(base.SQLiteCursorWrapper):
    """Checks the file also for statements that are transactions of their own; reads fail, too."""

    connection: CheckedConnection

    def execute(self, query: str, params: Any = None) -> Any:
        """Execute, and check the file unless a transaction continues.

        A statement that may write is checked before, too: once refused, it must not be found when the file is
        back.
        """
        may_write = not query.startswith("SELECT")
        return self._checked(super().execute, query, params, may_write=may_write)

    def executemany(self, query: str, param_list: Iterable[Any]) -> Any:
        return self._checked(super().executemany, query, param_list, may_write=True)

    def _checked(
        self, statement: Callable[[str, Any], Any], query: str, params: Any, *, may_write: bool
    ) -> Any:
        # In older libraries a concurrent checkpoint can lose a commit, so checkpoints take a slot, too.
        is_checkpoint = query.startswith("PRAGMA wal_checkpoint")
        writes = may_write and (is_checkpoint or not query.startswith("PRAGMA"))
        if writes and not self.connection.in_transaction:
            with self.connection.writing(is_checkpoint=is_checkpoint):
                self.connection.require_file()
                result = self._run(statement, query, params)
            if not self.connection.in_transaction and not is_checkpoint:
                self.connection.require_file_of_commit()
                return result
        else:
            result = self._run(statement, query, params)
        if not self.connection.in_transaction:
            self.connection.require_file()
        return result

    def _run(self, statement: Callable[[str, Any], Any], query: str, params: Any) -> Any:
        try:
            return statement(query, params)
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_BUSY:
                self.connection.is_locked_out = True
                counts.add(Counted.LOCK_TIMEOUTS)
                # Release the statement here. Otherwise the thread that collects the error's traceback does,
                # perhaps the event loop's, and waits as long as the connection waits for its next lock.
                self.close()
            self.connection.note(error)
            raise
        finally:
            self.connection.leave_ended_slot()


class ErrorWrapper(DatabaseErrorWrapper):
    """Reports a damaged file as a failure of the database, in any statement."""

    wrapper: Any

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, sqlite3.DatabaseError) and _code(error) in DAMAGED:
            self.wrapper.errors_occurred = True
            if isinstance(connection := self.wrapper.connection, CheckedConnection):
                connection.is_spent = True  # also when rows are fetched
            raise OperationalError(*error.args).with_traceback(traceback) from error
        super().__exit__(kind, error, traceback)


class SqliteDatabase(base.DatabaseWrapper):
    """Opens only the file that the process opened first; its threads write one after another."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers.append(lost_commits.of_single_statement)

    @cached_property
    def wrap_database_errors(self) -> ErrorWrapper:
        return ErrorWrapper(self)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Open the file. Raise FileGone if it was replaced, also during the wait for a lock."""
        path = str(conn_params["database"])
        if path.startswith(("file:", ":memory:")):  # tests: no file
            return _lenient(super().get_new_connection(conn_params))
        if files.is_known(path):
            files.identity(path)
            files.require_opened(path)
            conn_params = {**conn_params, "database": f"file:{quote(path)}?mode=rw"}  # never a new one
        else:
            marks.set_foreign_log_aside(path)
            if files.can_be_written(path):
                settled_logs.settle(path, wait_s=conn_params.get("timeout", WAIT_S))
        expected = files.found_at(path)
        connection = self._opened(conn_params)
        try:
            # The first statement that reads opens the files beside it, by their names.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            connection.opened = files.OpenedFiles(path, expected)
        except BaseException:
            connection.close()
            raise
        connection.slots = turns.of_file(path)
        connection.wait_ms = round(1000 * conn_params.get("timeout", WAIT_S))
        connection.is_read_only = not files.can_be_written(path)
        return _lenient(connection)

    def _opened(self, conn_params: dict[str, Any]) -> Any:
        """Open the file with retries: SQLite does not wait for others while it switches to its log."""
        until = time.monotonic() + conn_params.get("timeout", WAIT_S)
        while True:
            try:
                return super().get_new_connection({**conn_params, "factory": CheckedConnection})
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def create_cursor(self, name: str | None = None) -> Any:
        if not isinstance(self.connection, CheckedConnection):
            return super().create_cursor(name)
        return self.connection.cursor(factory=CheckedCursor)

    def _commit(self) -> None:
        """Commit. Raise LostCommit if a failed commit may be in the file."""
        try:
            super()._commit()  # type: ignore[misc]
        except MemoryError as error:  # the driver's error if SQLite had no memory, perhaps after the sync
            raise LostCommit("out of memory") from error
        except OperationalError as error:
            if self.may_have_committed(error):
                raise LostCommit(str(error)) from error.__cause__
            raise

    def may_have_committed(self, error: Error) -> bool:
        """Return whether a failed commit may be in the file: the file was removed, or the disk failed."""
        cause = error.__cause__
        if isinstance(cause, files.CommittedAway):
            return True
        return isinstance(cause, sqlite3.Error) and _code(cause) in COMMITTED_PERHAPS

    @contextmanager
    def waiting(self, at_most_ms: int) -> Iterator[None]:
        """Limit the wait for a slot and for a lock in this block."""
        self.ensure_connection()
        connection = self.connection
        if not isinstance(connection, CheckedConnection):
            yield
            return
        wait_ms, connection.wait_ms = connection.wait_ms, at_most_ms
        connection.wait_at_most(at_most_ms)
        try:
            yield
        finally:
            connection.wait_ms = wait_ms
            if connection is self.connection:  # else it was closed
                connection.wait_at_most(wait_ms)

    @property
    def is_read_only(self) -> bool:
        """Return whether the present connection cannot write; a new one may be able to."""
        return getattr(self.connection, "is_read_only", False)

    def close_if_unusable_or_obsolete(self) -> None:
        """Close the connection if it is unusable or cannot write, but not inside a transaction."""
        if self.is_read_only and not self.in_atomic_block:
            self.close()
        super().close_if_unusable_or_obsolete()

    def is_usable(self) -> bool:
        return not getattr(self.connection, "is_spent", False)


DatabaseWrapper = SqliteDatabase  # the name by which Django finds it


def _lenient(connection: Any) -> Any:
    """Make the connection read damaged texts, so that the whole ones beside them are served."""
    connection.text_factory = REPLACED
    return connection


def _code(error: sqlite3.Error) -> int:
    """Return the primary code of SQLite; 0 if the driver itself complains."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
