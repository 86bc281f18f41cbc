"""Which process runs an import: one of each user's, RUNS_MAX in all, each by one process at a time.

The database keeps this: a place of RUNS_MAX is taken once, and so is each user. A process that has taken an
import renews its lease; `attempt` distinguishes a process that has lost it from the one that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Now

from sessions_app.imports.uploads import pieces
from sessions_app.models import LEASE_S, RUNS_MAX, ImportRun, ImportState
from sessions_app.processes import Process
from sessions_app.shared_clock import was_within

# An import that is taken over this often without getting further has a file that ends each attempt.
CRASHES_MAX = 3
GIVEN_UP = (
    f"The server ended, or its database failed, {CRASHES_MAX} times in the same part of this file, so it is "
    "not tried again. What was imported before stays."
)


class Held(NamedTuple):
    """An import that this process has taken."""

    pk: int
    attempt: int


def claim(process: Process) -> ImportRun | None:
    """Take an import that another process has left, or else the oldest that waits; None if there is none."""
    running = list(ImportRun.objects.running())
    # Of a process on another host, only its silence is known.
    silent = ImportRun.objects.running().exclude(was_within("touched_at", LEASE_S))
    late = set(silent.values_list("pk", flat=True))
    for run in running:
        if run.is_left or run.pk in late:
            return _taken(run, run.slot, process)
    free = next((slot for slot in range(RUNS_MAX) if slot not in {run.slot for run in running}), None)
    waiting = ImportRun.objects.next().first() if free is not None else None
    return _taken(waiting, free, process) if waiting is not None else None


def renew(held: Mapping[Held, Mapping[str, Any]]) -> dict[Held, bool]:
    """Renew the leases of these imports with their progress; return which are held, and whether to cancel."""
    kept: dict[Held, bool] = {}
    for each, progress in held.items():
        rows = ImportRun.objects.held(*each)
        if rows.update(touched_at=Now(), **progress):
            kept[each] = bool(rows.values_list("is_cancelled", flat=True).first())
    return kept


def give_back(run: ImportRun) -> None:
    """Release an import to another process."""
    ImportRun.objects.held(run.pk, run.attempt).update(state=ImportState.WAITING, slot=None)


def end(run: ImportRun, state: ImportState, *, problem: str = "", progress: Mapping[str, Any]) -> None:
    """Note how an import has ended, and remove its file."""
    rows = ImportRun.objects.held(run.pk, run.attempt)
    if rows.update(state=state, slot=None, problem=problem, ended_at=Now(), **progress):
        pieces.discard(run)


def _taken(run: ImportRun, slot: int | None, process: Process) -> ImportRun | None:
    """Take one, unless another process was faster; None as well if it was tried too often."""
    try:
        with transaction.atomic():
            rows = ImportRun.objects.filter(pk=run.pk, state=run.state, attempt=run.attempt)
            is_taken = rows.update(
                **_crashes(run),
                state=ImportState.RUNNING,
                slot=slot,
                attempt=F("attempt") + 1,
                touched_at=Now(),
                started_at=Coalesce("started_at", Now()),
                host=process.host,
                pid=process.pid,
                process_started=process.started,
            )
    except IntegrityError:  # the place is taken, or another import of this user runs
        return None
    if not is_taken:
        return None
    run.refresh_from_db()
    if run.crashes >= CRASHES_MAX:
        end(run, ImportState.FAILED, problem=GIVEN_UP, progress={})
        return None
    return run


def _crashes(run: ImportRun) -> dict[str, int]:
    """Return the columns that count how often it was left where it is."""
    if run.state != ImportState.RUNNING:  # a process that ended in order has released it
        return {}
    # It got further since: what ended the last attempt was not this part of the file.
    if run.conversations > run.crashed_at:
        return {"crashes": 1, "crashed_at": run.conversations}
    return {"crashes": run.crashes + 1}
