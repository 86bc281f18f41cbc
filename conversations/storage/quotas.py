"""The limits of one user on this server: settings.CONFIGURATION.quotas, where 0 is none.

Rates are counted in memory (`rates`), so an append costs no query for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from django.conf import settings

from conversations import counts
from conversations.counts import Counted
from conversations.events import NewEvent
from conversations.exceptions import QuotaExceeded
from conversations.storage.rates import Rates
from conversations.storage.stored_bytes import Meter

MB = 1_000_000


class Rate(NamedTuple):
    quota: str  # the name in settings.CONFIGURATION.quotas
    window_s: int
    words: str  # what is counted


REQUESTS = Rate("requests_per_minute", 60, "requests a minute")
MESSAGES = Rate("messages_per_minute", 60, "messages and events a minute")
CONVERSATIONS = Rate("conversations_per_hour", 3_600, "new conversations an hour")
STARTS = Rate("starts_per_hour", 3_600, "started conversations an hour")

rates = Rates()  # the counts of this process
meter = Meter()  # the stored bytes, as this process knows them


def admit_request(user_pk: int) -> None:
    """Count a request or a handshake. Raise QuotaExceeded."""
    _admit(REQUESTS, user_pk, 1)


def admit_conversation(owner_pk: int) -> None:
    _admit(CONVERSATIONS, owner_pk, 1)


def admit_start(user_pk: int) -> None:
    _admit(STARTS, user_pk, 1)


def admit_events(owner_pk: int, events: Sequence[NewEvent]) -> None:
    """Count the events that a user adds; those of the server and its agents are free.

    Raise QuotaExceeded.
    """
    sent = [event for event in events if event.sender_id is not None]
    if not sent:
        return
    _admit(MESSAGES, owner_pk, len(sent))
    admit_bytes(owner_pk, lambda: sum(len(event.payload) for event in sent))


def admit_bytes(owner_pk: int, size_of: Callable[[], int]) -> None:
    """Count the bytes of events that a user adds; call `size_of` only if there is a quota.

    Raise QuotaExceeded.
    """
    if not (limit := limit_of("stored_mb")):
        return
    size = size_of()
    if (used := meter.take(owner_pk, size, limit=limit)) is not None:
        raise _no_room("stored_mb", used, size, "bytes of events", "Nothing more can be added.")


def require_room(quota: str, used: int, added: int, words: str, remedy: str) -> None:
    """Raise QuotaExceeded if a stored amount would exceed its limit; `remedy` says what the user can do."""
    limit = limit_of(quota)
    if limit and used + added > limit:
        raise _no_room(quota, used, added, words, remedy)


def _no_room(quota: str, used: int, added: int, words: str, remedy: str) -> QuotaExceeded:
    counts.add(Counted.QUOTA_REFUSALS, quota)
    return QuotaExceeded(
        f"You have {used:,} of {limit_of(quota):,} {words}, and this would add {added:,}. {remedy} "
        f"The server's operator can raise the limit ({variable_of(quota)}).",
        retry_after_s=3_600,  # only the user or the operator can change the amount
        is_about_room=True,
    )


def use_of_rates(user_pk: int) -> dict[str, int]:
    """Return what the user has used of each quota on a rate, as far as this process knows."""
    return {
        rate.quota: rates.used((rate.quota, user_pk), window_s=rate.window_s)
        for rate in (REQUESTS, MESSAGES, CONVERSATIONS, STARTS)
    }


def limit_of(quota: str) -> int:
    """Return the limit, in bytes if it is set in MB; 0 for none."""
    limit: int = getattr(settings.CONFIGURATION.quotas, quota)
    return limit * MB if quota.endswith("_mb") else limit


def variable_of(quota: str) -> str:
    """Return the variable of the environment that sets it."""
    return f"CONVSERVER_QUOTA_{quota.upper()}"


def _admit(rate: Rate, user_pk: int, amount: int) -> None:
    limit = limit_of(rate.quota)
    if not limit:
        return
    taken = rates.take((rate.quota, user_pk), amount, limit=limit, window_s=rate.window_s)
    if taken.wait_s:
        counts.add(Counted.QUOTA_REFUSALS, rate.quota)
        raise QuotaExceeded(
            f"You have used {taken.used:,} of {limit:,} {rate.words}, and this would add {amount:,}. "
            f"Try again in {taken.wait_s} seconds. "
            f"The server's operator can raise the limit ({variable_of(rate.quota)}).",
            retry_after_s=taken.wait_s,
        )
