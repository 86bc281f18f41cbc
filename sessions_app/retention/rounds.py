"""The periodic work: policies delete, overdue conversations are purged, and the files are cleaned."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from django.apps import apps
from django.db.models import Max
from django.utils import timezone

from conversations.engines import guards, residues
from conversations.engines.residues import Rest
from conversations.models import Purge
from conversations.server_log import log_act
from conversations.store import purging
from sessions_app import astore
from sessions_app.housekeeping import take_round
from sessions_app.models import RetentionPolicy, UserDeletion
from sessions_app.retention import left, limit, places, policies, purges, user_deletions
from sessions_app.retention.failures import RetentionFailures, outage

POLL_S = 10.0
"""A purge from a page or the admin begins within this time."""
SHIFT_S = 3 * POLL_S
"""One process carries out purges for this long, then the next one that asks."""
BEGUN_AT_ONCE = 100
"""At most this many purges are begun at once; the next ones once they are finished."""
# Overdue conversations that are tried in one round: some fail each time, and must not hide the others.
LOOKED_AT = 1_000
REST = 2.0
"""After a step it rests this many times as long as the step took."""

BY = "retention"
"""The recorded user of a purge that no person requested."""
# Tables of which a purge changes rows, or of which it removes them elsewhere.
_CHANGED_TOO = (
    "conversations.Label",
    "sessions_app.ImportedConversation",
    "sessions_app.Delivery",
    "sessions_app.ModelUse",
    "admin.LogEntry",
    "auth.User",
    "sessions_app.ImportRun",
    "conversations.Purge",
    "sessions_app.UserDeletion",
)


class Unfinished(NamedTuple):
    pk: int
    public_id: str
    """The conversation's id."""


class _Ending(Exception):
    """The process ends."""


class Retention:
    """The purges of one process; of several processes, one works at a time."""

    def __init__(self) -> None:
        # Its last round began as many purges as it may, so there may be more.
        self._has_more = False
        # Failed purges, which wait until all others are finished.
        self._stuck: set[int] = set()

    async def run(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(POLL_S)

    async def round(self) -> None:
        """Do the present work; failures are logged, and a later round retries."""
        failures = RetentionFailures()
        for part in (self._begin_left, self._begin_in_time, self._purge, self._erase_in_time):
            try:
                await part(failures)
            except Exception as error:  # the other parts go on
                failures.add(error, "work", part.__name__.strip("_"))
        if not failures.found:
            outage.worked()

    async def _begin_in_time(self, failures: RetentionFailures) -> None:
        if await astore.change(take_round, "retention", every_s=3600.0):
            await self._begin(failures)
            await astore.change(purges.sweep_late, failures=failures)
        elif await astore.change(user_deletions.is_any_unfinished):
            await self._begin(failures)

    async def _begin_left(self, failures: RetentionFailures) -> None:
        # In every round, not once an hour: a page says that it is purged soon after it was left.
        await astore.change(left.begin_left, BY, failures, most=BEGUN_AT_ONCE)

    async def _begin(self, failures: RetentionFailures) -> None:
        self._has_more = await astore.change(begin_due, failures) >= BEGUN_AT_ONCE

    async def _purge(self, failures: RetentionFailures) -> None:
        if not await astore.change(take_round, "purges", SHIFT_S):
            return
        # Ends before the shift does, so that two processes do not purge at the same time.
        until = time.monotonic() + SHIFT_S - POLL_S
        while await self._finish(until, failures) and self._has_more:
            await self._begin(failures)

    async def _finish(self, until: float, failures: RetentionFailures) -> bool:
        """Finish all purges but those that fail; return False if the time is over before."""
        while (unfinished := await astore.change(_next, self._stuck)) is not None:
            has_more = True
            while has_more:
                began = time.monotonic()
                if began > until:
                    return False
                has_more = await astore.change(self._step, unfinished, failures)
                await asyncio.sleep(_rest_s(time.monotonic() - began))
        self._stuck.clear()
        return True

    def _step(self, unfinished: Unfinished, failures: RetentionFailures) -> bool:
        with failures.noted("conversation", unfinished.public_id):
            return purges.step(unfinished.pk)
        self._stuck.add(unfinished.pk)
        return False

    async def _erase_in_time(self, failures: RetentionFailures) -> None:
        if not await astore.change(_is_erasing_due):
            return
        # A cancelled task does not end its thread, which looks at this between two parts.
        is_ending = threading.Event()
        try:
            await astore.change(_erase_until, is_ending)
        finally:
            is_ending.set()


def begin_due(failures: RetentionFailures | None = None) -> int:
    """Continue deletions of users, or else begin to purge what is overdue, and apply the policies.

    Return how many purges were begun.
    """
    failures = failures or RetentionFailures()
    limit.note()
    count = user_deletions.go_on(BEGUN_AT_ONCE, failures) or _begin_overdue(failures)
    # A policy deletes at most this many conversations in one round.
    deleted_at_once = 500
    for policy in RetentionPolicy.objects.in_force():
        with failures.noted("policy", policy.name):
            policies.apply(policy, limit=deleted_at_once, failures=failures)
    return count


def finish_all(failures: RetentionFailures | None = None, rest: Rest | None = None) -> None:
    """Carry out every unfinished purge, one after the other, past those that fail."""
    failures = failures or RetentionFailures()
    stuck: set[int] = set()
    while (unfinished := _next(stuck)) is not None:
        with failures.noted("conversation", unfinished.public_id):
            purges.run(unfinished.pk, rest)
            continue
        stuck.add(unfinished.pk)


def has_unerased() -> bool:
    """Return whether files are to be cleaned after a finished purge or deletion of a user."""
    return Purge.objects.unerased().exists() or UserDeletion.objects.unerased().exists()


def erase(*, rest: Rest | None = None, rewrites: bool = False) -> bool:
    """Clean the files, and record it in the finished purges; return False if it is to be retried.

    `rewrites` writes the tables anew, which blocks all other writers.
    """
    # Read first: what ends during the cleaning is left to the next round.
    newest = Purge.objects.unerased().aggregate(newest=Max("pk"), moment=Max("finished_at"))
    deletions = list(UserDeletion.objects.unerased().values_list("pk", flat=True))
    purges.sweep_late()
    purging.forget_titles()
    is_clean = residues.clean(_tables(), rest)
    if rewrites:
        is_clean = residues.rewrite(_tables())
    if is_clean:
        UserDeletion.objects.filter(pk__in=deletions).update(erased_at=timezone.now())
    if is_clean and newest["newest"] is not None:
        done = Purge.objects.unerased().filter(finished_at__lte=newest["moment"])
        log_act("Purges erased from the files", purges=done.update(erased_at=timezone.now()))
    return is_clean


def rest(took_s: float) -> None:
    """Wait, after a step that took this long, so that others can write."""
    time.sleep(_rest_s(took_s))


def _rest_s(took_s: float) -> float:
    # At least a moment, in which a writer that waits for SQLite's lock gets it.
    return max(0.01, min(REST * took_s, 10.0))


def _begin_overdue(failures: RetentionFailures) -> int:
    """Begin at most BEGUN_AT_ONCE purges; failed ones do not count."""
    count = 0
    for row in limit.overdue()[:LOOKED_AT]:
        days = (timezone.now() - row.deleted_at).days if row.deleted_at else 0
        with failures.noted("conversation", row.public_id):
            begun = purging.begin(
                row.ref, among=limit.overdue(), requested_by=BY, reason=f"deleted {days} days ago"
            )
            count += begun is not None
        if count >= BEGUN_AT_ONCE:
            break
    return count


def _next(stuck: Collection[int]) -> Unfinished | None:
    """Return the oldest unfinished purge that is not stuck."""
    rows = Purge.objects.unfinished().exclude(pk__in=stuck)
    found = rows.values_list("pk", "conversation__public_id").first()
    return None if found is None else Unfinished(*found)


def _is_erasing_due() -> bool:
    if not has_unerased():
        return False
    # The search index is written anew each time.
    erase_every_s = 6 * 3600.0
    lately = timezone.now() - timedelta(seconds=erase_every_s)
    return not Purge.objects.filter(erased_at__gte=lately).exists() and take_round("erasing", every_s=900.0)


def _erase_until(is_ending: threading.Event) -> None:
    """Clean the files, resting between the parts, until the process ends; a later round does the rest."""

    def rest(took_s: float) -> None:
        if is_ending.wait(_rest_s(took_s)):
            raise _Ending

    with suppress(_Ending):
        erase(rest=rest)


def _tables() -> list[str]:
    labels = ["conversations.Event", "conversations.Conversation", "conversations.CreationParameters"]
    named = dict.fromkeys((*places.REMOVED, *places.OF_USER, *_CHANGED_TOO))
    models = [apps.get_model(label) for label in (*labels, *named)]
    return [guards.SEARCH_TEXT, guards.TITLE_TEXT, *(model._meta.db_table for model in models)]
