"""The connections to PostgreSQL: one that cannot write is closed instead of kept.

After a failover, or when `default_transaction_read_only` is set, sessions may begin read-only, and stay
so even after the database accepts writes again.
"""

from __future__ import annotations

import time
from typing import Any

from django.db import Error
from django.db.backends.postgresql import base
from psycopg.pq import TransactionStatus

from conversations.engines import lost_commits
from conversations.engines.lost_commits import LostCommit
from conversations.engines.postgresql import unreplicated
from conversations.engines.postgresql.pool import WAIT_S, Pool

# A session in these states has not had the whole answer to its last statement.
UNANSWERED = (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)
# A read-only connection younger than this is still used for reading: another one would be no better.
KEPT_S = 1.0


class PostgresqlDatabase(base.DatabaseWrapper):
    """Django's wrapper; it never returns a read-only session to the pool."""

    _connection_pools: dict[str, Any]

    @property
    def pool(self) -> Any:
        """Return the pool that all connections under this alias share; None if the settings have none."""
        options = self.settings_dict["OPTIONS"].get("pool")
        if options and self.alias not in self._connection_pools:
            parameters = {**self.get_connection_params(), "autocommit": True}  # as Django does
            pool = Pool(
                kwargs=parameters,
                open=False,
                configure=self._configure_connection,
                **{"timeout": WAIT_S, **options},
            )
            self._connection_pools.setdefault(self.alias, pool)
        return super().pool

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection from the pool; an older one that cannot write is replaced."""
        connection = super().get_new_connection(conn_params)
        while self.pool and _begins_read_only(connection):
            if time.monotonic() <= getattr(connection, "made_at", 0.0) + KEPT_S:
                break
            connection.close()
            self.pool.putconn(connection)
            connection = super().get_new_connection(conn_params)
        return connection

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers += [lost_commits.of_single_statement, unreplicated.checked]

    def _configure_connection(self, connection: Any) -> bool:
        connection.made_at = time.monotonic()
        unreplicated.watch(connection)
        return bool(super()._configure_connection(connection))  # type: ignore[misc]

    def close_if_unusable_or_obsolete(self) -> None:
        """Close the connection if it is unusable or cannot write, but not inside a transaction."""
        if self.is_read_only and not self.in_atomic_block:
            self.close()
        super().close_if_unusable_or_obsolete()

    def _commit(self) -> None:
        """Commit. Raise LostCommit if the connection breaks meanwhile: the outcome is unknown then.

        Raise OutcomeUnknown if the commit did not wait for a synchronous standby.
        """
        connection = self.connection
        was_open = connection is not None and not connection.closed
        try:
            super()._commit()  # type: ignore[misc]
        except Error as error:
            unreplicated.require_none(self)
            if was_open and self.may_have_committed(error):
                self.drop_connection()
                raise LostCommit(str(error)) from error.__cause__
            raise
        unreplicated.require_none(self)  # also for a COMMIT that was sent with the last statements

    def may_have_committed(self, error: Error) -> bool:
        """Return whether a failed statement may have committed: then its session has ended meanwhile.

        A session can end between a commit and the end of the answer, before the connection is closed.
        """
        return self.connection is None or self.connection.info.transaction_status in UNANSWERED

    def drop_connection(self) -> None:
        """Close the connection after a commit of unknown outcome; the next statement opens another one.

        At the end of a transaction Django would open one at once, and its refusal would hide the unknown
        outcome.
        """
        if self.connection is not None:
            self.connection.close()  # the pool does not keep a closed one
            self.close()
        self.closed_in_transaction = True

    @property
    def is_read_only(self) -> bool:
        return self.connection is not None and _begins_read_only(self.connection)

    def _close(self) -> None:
        if self.is_read_only:
            self.connection.close()  # the pool does not keep a closed one
        super()._close()  # type: ignore[misc]


DatabaseWrapper = PostgresqlDatabase  # the name by which Django finds it


def _begins_read_only(connection: Any) -> bool:
    """Return whether a session's transactions begin read-only, if the server reports that (from 14 on)."""
    if connection.closed:
        return False
    status = connection.info.parameter_status
    return "on" in (status("default_transaction_read_only"), status("in_hot_standby"))
