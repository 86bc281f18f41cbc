"""Appends in the threads of the store: several in one transaction, or one by itself."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from conversations.engines import failures
from conversations.exceptions import ConversationBusy, ConversationError, OutcomeUnknown
from conversations.log import writes
from conversations.log.append import AppendOutcome, AppendRequest
from conversations.outages import Outage
from sessions_app.capacity.append_queue import FrameOrder, is_for_now
from sessions_app.connected_threads import repeated

unshared = Outage(
    __name__, "Appends that failed together are tried one by one", "Appends are made together again"
)

Outcome = AppendOutcome | ConversationError


def append_many(
    requests: list[AppendRequest], orders: Sequence[FrameOrder | None] = (None,)
) -> list[Outcome | Exception]:
    """Write a batch in one transaction; if one append may have failed it, write each by itself."""
    try:
        return list(repeated(lambda: writes.append_many(requests)))
    except OutcomeUnknown as error:  # of the commit that they shared
        return [error] * len(requests)
    except Exception as error:  # one append's failure must not fail the others
        is_of_all = failures.is_lasting(error, connection) or not failures.may_be_of_one(error)
        if len(requests) == 1 or is_of_all:
            return [error] * len(requests)
        unshared.failed(error)
    return _append_one_by_one(requests, orders)


def _append_one_by_one(
    requests: list[AppendRequest], orders: Sequence[FrameOrder | None]
) -> list[Outcome | Exception]:
    """Write each append by itself; an append behind a locked or refused one gets the same outcome.

    Otherwise a later append of the conversation, or a later frame of the connection, would overtake it.
    """
    outcomes: list[Outcome | Exception] = []
    locked: dict[int, ConversationBusy] = {}
    refused: dict[FrameOrder | None, Exception] = {}
    for request, order in zip(requests, orders, strict=True):
        pk = request.conversation.pk
        outcome = locked.get(pk) or refused.get(order) or append_many([request])[0]
        if isinstance(outcome, ConversationBusy):
            locked[pk] = outcome
        elif order is not None and isinstance(outcome, Exception) and is_for_now(outcome):
            refused[order] = outcome
        outcomes.append(outcome)
    return outcomes


def append_alone(requests: list[AppendRequest], *, wait: bool = True) -> list[Outcome | Exception]:
    """Write one request, waiting for its conversation's lock."""
    try:
        return list(repeated(lambda: writes.append_many(requests, wait=wait)))
    except Exception as error:  # passed to the caller
        return [error]


def append_unless_locked(requests: list[AppendRequest]) -> list[Outcome | Exception]:
    """Write one request if its conversation's lock can be had at once."""
    return append_alone(requests, wait=False)
