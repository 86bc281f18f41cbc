"""Wake-up jobs: PostgreSQL notifies workers of events that need an answer.

A job is deferred in the transaction that stores the event. It only speeds things up: the lease alone
decides who runs a loop, and each worker's sweep finds the work of a lost job. So jobs have no locks, are
deleted when done, and may be deleted at any time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from django.db import connection, transaction
from procrastinate import App, PsycopgConnector

from conversations.events import ConversationRef
from conversations.log import sql, wakeups
from sessions_app.housekeeping import take_round
from sessions_app.loops import leases

QUEUE = "wakeups"
WAKE, START = "convserver.wake", "convserver.start"
AT_ONCE = 10
"""A worker takes at most this many jobs at a time; each waits until there is room for its loop."""
# While no worker takes jobs; a worker that starts sweeps anyway.
KEPT_MAX = 500
DEAD_AFTER_S = 60
"""A worker of Procrastinate without a sign of life for this long does not return to its jobs."""
TRIM_S = 4.0

Wake = Callable[[int, bool], Awaitable[None]]
"""Starts the loop of the conversation with this key: if it has work, or in any case."""


def follow() -> None:
    """Defer a job with every later event that needs an answer."""
    wakeups.defer_by(_defer)


def _defer(pks: Sequence[int]) -> None:
    sql.defer_jobs(QUEUE, WAKE, pks)


def request_start(conversation: ConversationRef) -> None:
    """Request a worker to start the loop, even if it finds nothing to do; show it as starting until then."""
    with transaction.atomic():
        leases.expect(conversation)
        sql.defer_jobs(QUEUE, START, [conversation.pk])


def forget_starts(conversation: ConversationRef) -> None:
    """Delete the pending requests to start this loop, which was stopped since."""
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_STARTS, [START, str(conversation.pk)])


def trim() -> None:
    """Delete old jobs: those of dead workers, and all but the newest KEPT_MAX that no worker took.

    Of all processes that call it, one does so every TRIM_S.
    """
    if not take_round("wake-up jobs", TRIM_S):
        return
    with connection.cursor() as cursor:
        cursor.execute(_DELETE_LEFT, [DEAD_AFTER_S])
        cursor.execute(_DELETE_OLD, [KEPT_MAX])


_DELETE_STARTS = """
DELETE FROM procrastinate_jobs WHERE status = 'todo' AND task_name = %s AND args->>'pk' = %s
"""
_DELETE_LEFT = """
DELETE FROM procrastinate_jobs AS job WHERE status = 'doing' AND NOT EXISTS (
    SELECT 1 FROM procrastinate_workers AS worker
    WHERE worker.id = job.worker_id AND worker.last_heartbeat > now() - make_interval(secs => %s)
)
"""
_DELETE_OLD = """
DELETE FROM procrastinate_jobs WHERE status = 'todo' AND id <= (
    SELECT id FROM procrastinate_jobs WHERE status = 'todo' ORDER BY id DESC OFFSET %s LIMIT 1
)
"""


async def take(wake: Wake) -> None:
    """Take jobs until cancelled, and wake each one's conversation."""
    async with _opened() as app:

        @app.task(name=WAKE)
        async def woken(pk: int) -> None:
            await wake(pk, False)

        @app.task(name=START)
        async def started(pk: int) -> None:
            await wake(pk, True)

        await app.run_worker_async(
            queues=[QUEUE],
            concurrency=AT_ONCE,
            delete_jobs="always",
            install_signal_handlers=False,  # the worker has its own
            shutdown_graceful_timeout=0.0,  # a job only wakes: sweeps find its work as well
        )


@asynccontextmanager
async def _opened() -> AsyncIterator[App]:
    """Open connections of their own."""
    # One of them listens for as long as the worker runs, so they cannot be Django's.
    kwargs = {name: value for name, value in connection.get_connection_params().items() if name in _LIBPQ}
    connector = PsycopgConnector(min_size=1, max_size=4, timeout=5.0, kwargs=kwargs)
    async with App(connector=connector).open_async() as app:
        yield app


_LIBPQ = {
    "dbname",
    "user",
    "password",
    "host",
    "port",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "options",
}
"""Django's parameters that libpq knows; the others configure Django's own connections."""
