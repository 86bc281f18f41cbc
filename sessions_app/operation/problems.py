"""Problems of the installation: a sentence for each that the figures show, with advice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from django.conf import settings

from sessions_app.models import BackupOutcome, BackupRecord, ProcessRecord, ProcessRole
from sessions_app.operation.figures import COUNTED_MAX, Figures

WAITS_LONG = timedelta(seconds=30)
"""A message that no loop has taken for this long waits too long."""
NAMED_MAX = 3


class ProblemKind(StrEnum):
    """The problems, the most urgent first."""

    STALLED = "stalled_loop"
    GONE = "process_gone"
    WAITING = "messages_wait"
    FAILING = "webhooks_fail"
    UNDELIVERED = "webhooks_wait"
    LOCKED = "lock_held"
    BACKUP = "backup_missing"


class OperatorProblem(NamedTuple):
    kind: ProblemKind
    what: str
    advice: str
    """A sentence with the advice; text to be typed is between backquotes."""
    since: datetime | None
    brief: str
    """The part that every client may know, in a few words."""
    detail: str = ""
    """More sentences."""
    conversation: str | None = None
    """The public id of the conversation that it is about."""


def problems(figures: Figures) -> list[OperatorProblem]:
    found = (
        *_stalled(figures),
        *_gone(figures),
        *_waiting(figures),
        *_undelivered(figures),
        *_locked(figures),
        *_without_backup(figures),
    )
    return list(found)


def _stalled(figures: Figures) -> Iterator[OperatorProblem]:
    if count := figures.stalled.count:
        yield OperatorProblem(
            ProblemKind.STALLED,
            f"{_number(count, 'agent is', 'agents are')} at work, but nothing has come of it for a minute.",
            "Open the loop, look at its last event, and stop or interrupt it.",
            figures.stalled.since,
            "agents make no progress",
        )


def _gone(figures: Figures) -> Iterator[OperatorProblem]:
    gone = figures.presence.gone
    if not gone:
        return
    named = ", ".join(map(_named, gone[:NAMED_MAX]))
    more = f" and {len(gone) - NAMED_MAX} more" if len(gone) > NAMED_MAX else ""
    verb = "is" if len(gone) == 1 else "are"
    yield OperatorProblem(
        ProblemKind.GONE,
        f"{named[:1].upper()}{named[1:]}{more} {verb} gone: no heartbeat, and no stop. {_left(figures)}",
        "Look at the log of the process and start it again; if it is not needed any more, remove its row.",
        min(record.seen_at for record in gone),
        "a process is gone",
    )


def _named(record: ProcessRecord) -> str:
    return f"the {record.role} {record.pid} on {record.host_name}"


def _left(figures: Figures) -> str:
    presence = figures.presence
    servers, workers = (presence.count(role) for role in (ProcessRole.SERVER, ProcessRole.WORKER))
    if not settings.CONFIGURATION.is_clustered:
        return f"{_number(servers, 'server runs', 'servers run')}."
    counted = f"{_number(servers, 'server', 'servers')} and {_number(workers, 'worker', 'workers')}"
    return f"Running: {counted}."


def _waiting(figures: Figures) -> Iterator[OperatorProblem]:
    count, since = figures.unanswered.count, figures.unanswered.since
    if since is None or figures.at - since < WAITS_LONG:
        return
    waiting = f"{_number(count, 'conversation waits', 'conversations wait')} for an answer"
    what, advice = f"{waiting}, and no agent has begun.", "Look at the log of the server."
    if settings.CONFIGURATION.is_clustered:
        workers = figures.presence.count(ProcessRole.WORKER)
        running = _number(workers, "worker runs", "workers run") if workers else "no worker runs"
        what = f"{waiting} and no worker has begun: {running}."
        advice = (
            "Start a worker (`convserver worker`)."
            if not workers
            else ("Start more workers, or let each play more turns (`--concurrency`).")
        )
    yield OperatorProblem(ProblemKind.WAITING, what, advice, since, "messages wait for an agent")


def _undelivered(figures: Figures) -> Iterator[OperatorProblem]:
    failing, since = figures.failing, figures.undelivered.since
    # An endpoint that lacks something for this long waits too long, even if no delivery has failed.
    undelivered_long = timedelta(minutes=10)
    if failing.count:  # failures explain what waits
        yield OperatorProblem(
            ProblemKind.FAILING,
            "Webhooks do not go out: deliveries fail for "
            f"{_number(failing.count, 'conversation', 'conversations')}.",
            "Read the error of a delivery, repair or disable its endpoint, and choose “Retry now”.",
            failing.since,
            "webhooks fail",
        )
    elif since is not None and figures.at - since >= undelivered_long:
        yield OperatorProblem(
            ProblemKind.UNDELIVERED,
            "Webhooks do not go out: no process delivers them.",
            "Look whether a worker, or the server, runs and can reach the endpoints.",
            since,
            "webhooks wait",
        )


def _locked(figures: Figures) -> Iterator[OperatorProblem]:
    for wait in figures.waits:
        what = (
            f"A lock is held by {wait.holder}."
            if wait.is_lock
            else f"A statement of {wait.holder} takes long."
        )
        end = f"end it: `SELECT pg_terminate_backend({wait.session})`" if wait.session else "end it"
        waiting = f"Waiting: {wait.waiting}." if wait.waiting else ""
        of = f"Conversation {wait.conversation}." if wait.conversation else ""
        yield OperatorProblem(
            ProblemKind.LOCKED,
            what,
            f"Let that program finish, or {end}.",
            figures.at - timedelta(seconds=wait.seconds),
            "a lock is held",
            " ".join(filter(None, (wait.doing, waiting, of))),
            wait.conversation,
        )


def _without_backup(figures: Figures) -> Iterator[OperatorProblem]:
    days = settings.CONFIGURATION.backup_max_age_days
    newest, last = figures.backup, figures.last_backup
    if not days or (newest is not None and figures.at - newest.ended_at < timedelta(days=days)):
        return
    what = (
        "No backup of this store has ever been made."
        if newest is None
        else (f"The newest whole backup is older than {_number(days, 'day', 'days')}.")
    )
    yield OperatorProblem(
        ProblemKind.BACKUP,
        f"{what}{_failure(last)}",
        "Run `convserver backup DIR --verify`, and have a timer do so every day.",
        None if newest is None else newest.ended_at,
        "no recent backup",
    )


def _failure(last: BackupRecord | None) -> str:
    if last is None or (last.outcome == BackupOutcome.MADE and last.is_verified is not False):
        return ""
    return f" The last one ({last.get_outcome_display()}): {last.detail}"


def _number(count: int, one: str, many: str) -> str:
    if count >= COUNTED_MAX:
        return f"At least {count:,} {many}"
    return f"{count} {one if count == 1 else many}"
