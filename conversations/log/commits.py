"""Appends and their commits: the outcome of a commit is known before any caller is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import stamina
import stamina.instrumentation
from django.db import Error, InterfaceError, OperationalError, connection, connections, transaction

from conversations.engines.lost_commits import LostCommit
from conversations.engines.sqlite3.files import CommittedAway
from conversations.exceptions import ConversationError, MaskingDeferred, OutcomeUnknown
from conversations.log import append, sql
from conversations.log.append import LOCK_TIMEOUT_S, AppendOutcome, AppendRequest
from conversations.models import Conversation
from conversations.outages import Outage

T = TypeVar("T")

LOOK_UP_S = 10.0  # how long a lost commit is looked up, at least
MASK_TRIES = 3  # how often an append is masked again before its transaction, because the secrets have changed
AGAIN_S = 0.2  # the pause before it is looked up again
UNKNOWN = (
    "The connection to the database broke while this was being stored, so it may be stored or not: "
    "repeat it with the same id, and it is stored once."
)
UNKNOWN_DISK = (
    "The disk of the database failed while this was being stored, so it may be stored or not: "
    "repeat it with the same id, and it is stored once."
)
UNKNOWN_FILE = (
    "The file of the database was removed or replaced while this was being stored, so it is stored if that "
    "file comes back: repeat it with the same id, and it is stored once."
)

_lost = Outage(
    __name__,
    "The connection broke during a commit, and what became of it is looked up",
    "What became of the commit is known",
)

# An Outage logs when something begins to fail, not each further attempt.
stamina.instrumentation.set_on_retry_hooks(())


def committed(requests: Sequence[AppendRequest], *, wait: bool) -> list[AppendOutcome | ConversationError]:
    """Append all in one transaction and commit it; answer each in its place.

    Raise OperationalError or InterfaceError only where nothing was stored. Raise OutcomeUnknown where the
    connection broke during the commit and the database does not tell its outcome within LOOK_UP_S, or where
    SQLite's file was removed or could not be synced during the commit. Inside another transaction, that one
    commits.
    """
    is_inner = connection.in_atomic_block
    outcomes: list[AppendOutcome | ConversationError] = []
    may_be_stored = False
    try:
        with transaction.atomic():
            batch = append.number(requests, wait=wait)
            outcomes = batch.outcomes
            batch.write(commits=not is_inner and batch.ends_transaction)
            may_be_stored = not is_inner and connection.vendor == "postgresql"
    except (OperationalError, InterfaceError) as error:
        new = _new_events(requests, outcomes) if outcomes else []
        if new and isinstance(error, LostCommit) and connection.vendor == "sqlite":
            # A look would not help: the file is not there, or the next start may find more in it.
            is_away = isinstance(error.__cause__, CommittedAway)
            raise OutcomeUnknown(UNKNOWN_FILE if is_away else UNKNOWN_DISK) from error
        # SQLite has no connection to lose: if it reports another failure, nothing was stored.
        if not new or not (may_be_stored or isinstance(error, LostCommit)):
            raise
        _lost.failed(error)
        if not _are_stored(new):
            if isinstance(error, LostCommit):  # the outcome is known now
                raise OperationalError(str(error)) from error.__cause__
            raise
        _lost.worked()
    return outcomes


def masked_and_committed(request: AppendRequest) -> list[AppendOutcome | ConversationError]:
    """Append and commit one request like `committed`; mask long events before the transaction.

    Inside another transaction, and if the secrets keep changing, mask them under the lock.
    """
    if not connection.in_atomic_block:
        for _ in range(MASK_TRIES):
            (outcome,) = committed([replace(request, defers_masking=True)], wait=True)
            if not isinstance(outcome, MaskingDeferred):
                return [outcome]
            request = append.masked(request)
    return committed([request], wait=True)


def _new_events(
    requests: Sequence[AppendRequest], outcomes: Sequence[AppendOutcome | ConversationError]
) -> list[tuple[int, str]]:
    """Return the conversations and event ids that a commit would have stored."""
    return [
        (request.conversation.pk, envelope["id"])
        for request, outcome in zip(requests, outcomes, strict=True)
        if isinstance(outcome, AppendOutcome)
        for envelope in outcome.envelopes
    ]


def _are_stored(events: list[tuple[int, str]]) -> bool:
    """Return whether these events are in the log; one transaction stores all or none of them.

    Raise OutcomeUnknown for any failure: no failure proves that nothing was stored.
    """
    try:
        return until_answered(lambda: _are_stored_now(events), is_passing=_is_lost)
    except Exception as error:
        raise OutcomeUnknown(UNKNOWN) from error


def _is_lost(error: Exception) -> bool:
    is_lost = isinstance(error, Error)
    if is_lost:
        _lost.failed(error)
    return is_lost


def until_answered(ask: Callable[[], T], *, is_passing: Callable[[Exception], bool]) -> T:
    """Return the database's answer; ask again every AGAIN_S while the failure is a passing one.

    Raise the last failure after LOOK_UP_S.
    """
    pace = stamina.RetryingCaller(
        attempts=None, timeout=LOOK_UP_S, wait_initial=AGAIN_S, wait_max=AGAIN_S, wait_jitter=0
    )
    return pace(is_passing, ask)


def _are_stored_now(events: list[tuple[int, str]]) -> bool:
    """Look for the events, and again under the conversations' locks, which an unfinished commit holds.

    A session that can only read shows what is stored, but cannot take the locks.
    """
    drop_broken_connections()
    if _are_there(events):
        return True
    with transaction.atomic():
        if connection.vendor == "postgresql":
            sql.limit_lock_wait(LOCK_TIMEOUT_S)
        pks = sorted({pk for pk, _ in events})
        rows = Conversation.objects.filter(pk__in=pks).order_by("pk").values_list("pk", flat=True)
        list(rows.select_for_update(no_key=True))
        return _are_there(events)


def _are_there(events: list[tuple[int, str]]) -> bool:
    return len(sql.events_with_ids(set(events)).rows()) == len(set(events))


def drop_broken_connections() -> None:
    """Drop this thread's connection if it broke or cannot write, and the broken connections of the pool."""
    for each in connections.all(initialized_only=True):
        each.close_if_unusable_or_obsolete()
        pool = getattr(each, "pool", None)  # PostgreSQL
        if pool is not None and each.connection is None:
            pool.check()  # a restart of the database broke all connections, more than the number of tries
