"""The server's own verifications: of recent changes at each start, of everything every night."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta

from django.utils import timezone

from conversations.exceptions import ConversationError
from conversations.models import Conversation, Occasion, Outcome, VerificationRun
from conversations.outages import Outage
from conversations.server_log import log_act
from conversations.verification import recent, records
from conversations.verification.records import RunRecord
from sessions_app import astore
from sessions_app.event_loops import uncancelled
from sessions_app.housekeeping import put_back_round, take_round
from sessions_app.processes import is_there, this_process
from sessions_app.verification.checks import Check, checks, run

# Clients that wait for the server's start come first.
START_AFTER_S = 2.0
LOOK_S = 300.0
ROUND = "verification"
NIGHT_HOURS = range(1, 5)
"""In UTC: when everything is verified, once in the installation."""
# Less than a day, since one night's round does not begin at the same minute as the last one.
NIGHT_EVERY_S = 20 * 3600.0
SILENT_AFTER = timedelta(hours=1)
"""A run without a sign of life for this long has ended."""
REST = 3.0
"""After a step it rests this many times as long as the step took."""
NAMED_MAX = 5
"""At most this many damaged places are named in the server's log."""

logger = logging.getLogger(__name__)
_failing = Outage(__name__, "The store could not be verified", "The store can be verified again")


async def verify(*, is_housekeeper: bool) -> None:
    """Verify the ends of recently changed logs, within limits.

    If this process is the housekeeper, verify everything every night.
    """
    await asyncio.sleep(START_AFTER_S)
    await _made(Occasion.START, rest=0.0)
    while is_housekeeper:
        await asyncio.sleep(LOOK_S)
        try:
            is_due = await astore.change(_take_night)
        except Exception as error:  # the next look retries
            _failing.failed(error)
            continue
        if is_due:
            await _made(Occasion.NIGHT, rest=REST)


def begin(occasion: Occasion) -> tuple[RunRecord, list[Check]]:
    """Record that a verification of this kind begins, and return its checks."""
    process = this_process()
    if occasion is Occasion.START:
        _close_interrupted()
        since = last_clean()
        made, covers, expected = [Check(steps=lambda: recent.steps(since))], "what changed lately", 0
    else:
        made, covers, expected = checks(), "all conversations", Conversation.objects.count()
    record = records.begin(occasion, covers, host=process.host, pid=process.pid, expected=expected)
    return record, made


def last_clean() -> int:
    """Return the key of the newest event at the last clean verification; 0 without one."""
    own = VerificationRun.objects.clean().filter(occasion__in=[Occasion.START, Occasion.NIGHT])
    return own.values_list("newest_event", flat=True).first() or 0


def _close_interrupted() -> None:
    """Record the end of verifications whose processes are gone, so that another process repeats theirs."""
    gone = [run for run in records.unfinished() if _is_interrupted(run)]
    records.close(gone)
    if any(run.occasion == Occasion.NIGHT for run in gone):
        _put_back_night()


def _is_interrupted(run: VerificationRun) -> bool:
    """Return whether a run's process is gone or, on another host, silent for SILENT_AFTER."""
    # In either direction: the clock of that host may have been ahead.
    if abs(timezone.now() - run.updated_at) > SILENT_AFTER:
        return True
    return not is_there(run.host, run.pid)


def _put_back_night() -> None:
    """Mark the night as not verified, so that the next look verifies it, if it is still night."""
    nights = VerificationRun.objects.filter(
        occasion=Occasion.NIGHT, outcome__in=[Outcome.WHOLE, Outcome.DAMAGED]
    )
    last = nights.order_by("-pk").values_list("started_at", flat=True).first()
    put_back_round(ROUND, NIGHT_EVERY_S, last)


def _take_night() -> bool:
    """Return whether this process is to verify everything now."""
    _close_interrupted()
    is_night = timezone.now().hour in NIGHT_HOURS
    # A server that never runs at night verifies everything after this long, at any hour.
    late_after_s = 48 * 3600.0
    return take_round(ROUND, NIGHT_EVERY_S if is_night else late_after_s)


async def _made(occasion: Occasion, *, rest: float) -> None:
    """Make a verification, step by step, each in a thread of the store, and log its outcome."""
    try:
        record, made = await astore.change(begin, occasion)
    except Exception as error:
        _failing.failed(error)
        return
    try:
        await _make(run(record, made), rest)
        await astore.change(record.end)
    except asyncio.CancelledError:
        await uncancelled(_end_failed(record, records.INTERRUPTED))
        raise
    except Exception as error:
        reason = records.reason_of(error)
        _failing.failed(ConversationError(reason))
        await _end_failed(record, reason)
        return
    _failing.worked()
    _log(record)


async def _make(steps: Iterator[None], rest: float) -> None:
    """Make all steps; after each, rest REST times as long as it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while await astore.change(_next, steps):
        await asyncio.sleep(rest * (loop.time() - began))
        began = loop.time()


def _next(steps: Iterator[None]) -> bool:
    """Make one step; return whether there was one."""
    return next(steps, _END) is not _END


_END = object()


async def _end_failed(record: RunRecord, reason: str) -> None:
    try:
        await astore.change(_give_up, record, reason)
    except Exception as error:  # the database that failed may work for this
        _failing.failed(error)


def _give_up(record: RunRecord, reason: str) -> None:
    record.end(failure=reason)
    if record.run.occasion == Occasion.NIGHT:
        _put_back_night()


def _log(record: RunRecord) -> None:
    ended = record.run
    lasted = (ended.finished_at or ended.started_at) - ended.started_at
    log_act(
        "Store verified",
        occasion=ended.occasion,
        outcome=ended.outcome,
        conversations=ended.conversations,
        events=ended.events,
        problems=ended.problems,
        seconds=round(lasted.total_seconds(), 1),
    )
    if ended.outcome == Outcome.DAMAGED:
        named = "; ".join(damage.line() for damage in record.found[:NAMED_MAX])
        logger.error("The store is damaged, places: %d. The first: %s", ended.problems, named)
