"""The periodic work: policies delete, overdue conversations are purged, and the files are cleaned."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from datetime import timedelta

from django.utils import timezone

from conversations.exceptions import ConversationError
from conversations.models import Purge
from conversations.outages import Outage
from conversations.store import purging
from sessions_app import astore
from sessions_app.housekeeping import take_round
from sessions_app.models import RetentionPolicy
from sessions_app.retention import erasing, policies, purges

POLL_S = 10.0
"""What somebody has purged in a page or the admin is begun within this time."""
DUE_EVERY_S = 3600.0
ERASE_EVERY_S = 6 * 3600.0
"""So often at most the search index is rewritten."""
ERASE_AGAIN_S = 900.0
TURN_S = 30.0
"""One process carries purges out for so long, then whichever asks next."""
BEGUN_AT_ONCE = 100
"""At most this many purges are begun in one round."""
DELETED_AT_ONCE = 500
"""At most this many conversations a policy deletes in one round."""
REST = 2.0
"""After a step it rests this many times as long as the step took."""
REST_MIN_S = 0.01
REST_MAX_S = 10.0

_failing = Outage(
    __name__, "Deleted conversations could not be purged", "Deleted conversations are purged again"
)

BY = "retention"
"""Who is recorded for a purge that nobody asked for."""


class _Ending(Exception):
    """The process ends."""


class Retention:
    """The purges of one process; of several processes, one works at a time."""

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self._round()
                _failing.worked()
            except Exception as error:  # the next round tries again
                _failing.failed(error)
            await asyncio.sleep(POLL_S)

    async def _round(self) -> None:
        if await astore.change(take_round, "retention", DUE_EVERY_S):
            await astore.change(begin_due)
            await astore.change(purges.sweep_late)
        if await astore.change(take_round, "purges", TURN_S):
            await self._purge(until=time.monotonic() + TURN_S - POLL_S)
        if await astore.change(_is_erasing_due):
            await self._erase()

    async def _erase(self) -> None:
        is_ending = threading.Event()
        try:
            await astore.change(_erase, is_ending)
        finally:
            is_ending.set()

    async def _purge(self, *, until: float) -> None:
        while (pk := await astore.change(_next)) is not None:
            has_more = True
            while has_more:
                began = time.monotonic()
                if began > until:
                    return
                has_more = await astore.change(purges.step, pk)
                await asyncio.sleep(max(REST_MIN_S, REST * (time.monotonic() - began)))


def begin_due() -> int:
    """Apply the policies, and begin to purge what is overdue; return how many purges were begun."""
    for policy in RetentionPolicy.objects.in_force():
        policies.apply(policy, limit=DELETED_AT_ONCE)
    count = 0
    for row in policies.overdue()[:BEGUN_AT_ONCE]:
        days = (timezone.now() - row.deleted_at).days if row.deleted_at else 0
        try:
            begun = purging.begin(row.ref, requested_by=BY, reason=f"deleted {days} days ago")
        except ConversationError:  # locked: the next round finds it again
            continue
        count += begun is not None
    return count


def finish_all() -> None:
    """Carry out every purge that is begun, without rests."""
    while (pk := _next()) is not None:
        purges.run(pk)


def _next() -> int | None:
    return Purge.objects.unfinished().values_list("pk", flat=True).first()


def _is_erasing_due() -> bool:
    if not erasing.is_due():
        return False
    lately = timezone.now() - timedelta(seconds=ERASE_EVERY_S)
    return not Purge.objects.filter(erased_at__gte=lately).exists() and take_round("erasing", ERASE_AGAIN_S)


def _erase(is_ending: threading.Event) -> None:
    """Clean the files, resting between the parts, until the process ends; a later round does what is left."""

    def rest(took_s: float) -> None:
        if is_ending.wait(max(REST_MIN_S, min(REST * took_s, REST_MAX_S))):
            raise _Ending

    with suppress(_Ending):
        erasing.erase(rest=rest)
