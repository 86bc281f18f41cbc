"""The pool of connections to PostgreSQL: it retries soon after a refusal, and reports why it has none."""

from __future__ import annotations

from typing import Any

from psycopg import OperationalError
from psycopg_pool import ConnectionPool, PoolTimeout

AGAIN_S = 0.5  # the longest pause between tries to connect, while a request waits
WAIT_S = 5.0  # the longest wait for a connection
ALL_USED = "all connections of this process are in use"


class NoConnection(PoolTimeout):
    """There was no connection within WAIT_S; the text says why the last one was refused."""


class Pool(ConnectionPool[Any]):
    """psycopg's pool, without its pauses: those double with each refusal, and outlast its cause."""

    def __init__(self, **options: Any) -> None:
        super().__init__(reconnect_timeout=AGAIN_S, reconnect_failed=_ask_again, **options)
        # Why PostgreSQL has refused the newest connection; None if it has not.
        self.refusal: OperationalError | None = None

    def getconn(self, timeout: float | None = None) -> Any:
        try:
            return super().getconn(timeout)
        except PoolTimeout as error:
            raise NoConnection(str(self.refusal or ALL_USED)) from error

    def _connect(self, timeout: float | None = None) -> Any:
        try:
            connection = super()._connect(timeout)
        except OperationalError as error:
            self.refusal = error
            raise
        self.refusal = None
        return connection


def _ask_again(pool: ConnectionPool[Any]) -> None:
    # Without waiting requests, the next one starts a new try.
    if pool.get_stats().get("requests_waiting"):
        pool.check()
