"""Locking conversations, with a limit on the wait for other transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from conversations import counts
from conversations.counts import Counted
from conversations.engines.failures import is_locked
from conversations.exceptions import ConversationBusy
from conversations.log import sql
from conversations.log.append import LOCK_TIMEOUT_S
from conversations.models import Conversation, ConversationQuerySet, ConversationRef


def lock(
    rows: ConversationQuerySet, conversation: ConversationRef, *, wait_s: float | None = None
) -> Conversation | None:
    """Return the conversation, locked until the transaction ends; None if it is not one of `rows`.

    Raise ConversationBusy after `wait_s` seconds, by default LOCK_TIMEOUT_S.
    """
    return next(iter(_locked(rows.filter(pk=conversation.pk), wait_s)), None)


def lock_all(conversations: Sequence[ConversationRef]) -> None:
    """Lock several conversations, deleted or not, until the transaction ends, before writing to any.

    All callers that lock several do so in the order of their keys, so that they cannot deadlock. Raise
    ConversationBusy after LOCK_TIMEOUT_S.
    """
    pks = [conversation.pk for conversation in conversations]
    _locked(Conversation.objects.with_pks(pks))


@contextmanager
def unless_locked() -> Iterator[None]:
    """Run a block that writes; leave it silently where it would wait for another transaction's lock."""
    if connection.in_atomic_block:
        yield
        return
    try:
        with _at_once():
            yield
    except OperationalError as error:
        if not is_locked(error):
            raise


@contextmanager
def _at_once() -> Iterator[None]:
    if connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '1ms'")
            yield
        return
    wrapper: Any = connection
    with wrapper.waiting(0):
        yield


def _locked(rows: ConversationQuerySet, wait_s: float | None = None) -> list[Conversation]:
    if connection.vendor == "postgresql":
        sql.limit_lock_wait(LOCK_TIMEOUT_S if wait_s is None else wait_s)
    try:
        return list(rows.locked().order_by("pk"))
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            counts.add(Counted.LOCK_TIMEOUTS)
            raise ConversationBusy("The conversation is locked by another process. Try again.") from error
        raise
