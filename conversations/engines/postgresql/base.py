"""The connections to PostgreSQL: one that cannot write is thrown away rather than kept.

After a failover, or when somebody sets `default_transaction_read_only`, sessions may begin read-only, and
stay so although the database could write again long since.
"""

from __future__ import annotations

import time
from typing import Any

from django.db import Error
from django.db.backends.postgresql import base

from conversations.engines.lost_commits import LostCommit
from conversations.engines.postgresql.pool import WAIT_S, Pool

KEPT_S = 1.0
"""So young a connection that cannot write is used all the same, to read: another one would be no better."""


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, that never gives a read-only session back to the pool."""

    _connection_pools: dict[str, Any]

    @property
    def pool(self) -> Any:
        """The pool that all connections under this alias share; None where the settings ask for none."""
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
        """Return a connection of the pool; instead of an older one that cannot write, another."""
        connection = super().get_new_connection(conn_params)
        while self.pool and _begins_read_only(connection) and _age_s(connection) > KEPT_S:
            connection.close()
            self.pool.putconn(connection)
            connection = super().get_new_connection(conn_params)
        return connection

    def _configure_connection(self, connection: Any) -> bool:
        connection.made_at = time.monotonic()
        return bool(super()._configure_connection(connection))  # type: ignore[misc]

    def close_if_unusable_or_obsolete(self) -> None:
        """Close the connection also if it cannot write; nothing inside a transaction."""
        if self.is_read_only and not self.in_atomic_block:
            self.close()
        super().close_if_unusable_or_obsolete()

    def _commit(self) -> None:
        """Commit. Raise LostCommit if the connection breaks meanwhile; nothing says then what was done."""
        connection = self.connection
        was_open = connection is not None and not connection.closed
        try:
            super()._commit()  # type: ignore[misc]
        except Error as error:
            if was_open and connection.closed:
                raise LostCommit(str(error)) from error.__cause__
            raise

    @property
    def is_read_only(self) -> bool:
        """Whether there is a connection and it cannot write."""
        return self.connection is not None and _begins_read_only(self.connection)

    def _close(self) -> None:
        if self.is_read_only:
            self.connection.close()  # a closed one is not kept by the pool
        super()._close()  # type: ignore[misc]


def _begins_read_only(connection: Any) -> bool:
    """Say whether a session's transactions begin read-only, as far as the server tells that (from 14 on)."""
    if connection.closed:
        return False
    status = connection.info.parameter_status
    return "on" in (status("default_transaction_read_only"), status("in_hot_standby"))


def _age_s(connection: Any) -> float:
    return time.monotonic() - float(getattr(connection, "made_at", 0.0))
