"""The record of verifications: runs with their progress, and damage until it is repaired."""

from __future__ import annotations

import traceback
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from django.db import Error as DatabaseProblem
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from conversations import live
from conversations.engines import failures
from conversations.models import (
    SHOWN_TO_READERS,
    Conversation,
    ConversationQuerySet,
    DamageKind,
    Occasion,
    Outcome,
    VerificationFinding,
    VerificationRun,
)
from conversations.verification import store
from conversations.verification.damage import Damage
from conversations.verification.store import VerificationStep

SHOWN_MAX = 20  # the most damaged places in the row of a conversation, for its readers
FOUND_MAX = 1_000  # the most damaged places that a run lists at its end; all are stored

PROGRESS_EVERY = timedelta(seconds=1)
INTERRUPTED = "It was interrupted."


class RunRecord:
    """The record of one run, written while it runs."""

    def __init__(self, run: VerificationRun) -> None:
        self.run = run
        self.found: list[Damage] = []  # what was found, at most FOUND_MAX; the run counts all
        self._counts: Counter[DamageKind] = Counter()

    def take(self, step: VerificationStep) -> None:
        """Record what a step has read and found."""
        run = self.run
        run.conversations += step.conversations
        run.events += step.events
        run.problems += len(step.found)
        self._counts.update(damage.problem for damage in step.found)
        self.found += step.found[: max(0, FOUND_MAX - len(self.found))]
        if step.found:
            _note(run, step.found)
        now = timezone.now()
        if now - run.updated_at > PROGRESS_EVERY:
            run.updated_at = now
            run.save(update_fields=["conversations", "events", "problems", "updated_at"])

    def mend(self, examined: Collection[DamageKind], rows: ConversationQuerySet | None = None) -> None:
        """Delete findings of these problems that this run has not repeated.

        The run has examined these conversations, or, without any, the whole store.
        """
        # A run that began later, or has found the damage meanwhile, judges it itself.
        stale = VerificationFinding.objects.filter(
            _before(self.run), problem__in=examined, found_at__lt=self.run.started_at
        )
        if rows is not None:
            stale = stale.filter(conversation__in=rows)
        while gone := list(stale.values_list("pk", "conversation_id")[:500]):
            with transaction.atomic():
                VerificationFinding.objects.filter(pk__in=[pk for pk, _ in gone]).delete()
                _show({conversation for _, conversation in gone})

    def forget(self, problems: Collection[DamageKind]) -> None:
        """Delete the findings of these problems: they have been repaired."""
        self.run.problems -= sum(self._counts.pop(problem, 0) for problem in problems)
        self.found = [damage for damage in self.found if damage.problem not in problems]
        VerificationFinding.objects.filter(problem__in=problems).delete()

    def end(self, *, failure: str = "") -> VerificationRun:
        run = self.run
        run.finished_at = run.updated_at = timezone.now()
        run.outcome = Outcome.FAILED if failure else Outcome.DAMAGED if run.problems else Outcome.WHOLE
        run.detail = failure
        run.save()
        return run


def begin(occasion: Occasion, covers: str, *, host: str, pid: int, expected: int = 0) -> RunRecord:
    """Record the beginning of a verification, and delete old runs."""
    newest = store.newest_event()
    run = VerificationRun.objects.create(
        occasion=occasion, covers=covers, host=host, pid=pid, newest_event=newest, expected=expected
    )
    # The newest 1,000 runs are kept; the findings of deleted ones stay.
    VerificationRun.objects.filter(pk__lte=run.pk - 1_000).delete()
    return RunRecord(run)


def reason_of(error: BaseException) -> str:
    """Return why a run failed, without any text that may quote stored content.

    The errors of the driver may, and those of code that reads payloads.
    """
    if isinstance(error, DatabaseProblem):
        return failures.sentence(error)
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def unfinished() -> list[VerificationRun]:
    """Return the runs without a recorded end: they are running, or their processes are gone."""
    return list(VerificationRun.objects.filter(outcome=Outcome.RUNNING).order_by("pk"))


def close(runs: Collection[VerificationRun]) -> None:
    """Record that these runs were interrupted."""
    VerificationRun.objects.filter(pk__in=[run.pk for run in runs], outcome=Outcome.RUNNING).update(
        outcome=Outcome.FAILED, detail=INTERRUPTED, finished_at=timezone.now()
    )


def _note(run: VerificationRun, found: Sequence[Damage]) -> None:
    """Store new damage; assign known damage to this run, too."""
    pks = {damage.conversation_pk for damage in found}
    at = Q(conversation__in=pks - {None}) | (Q(conversation=None) if None in pks else Q(pk=None))
    problems = {damage.problem for damage in found}
    known = {
        (row.conversation_id, row.seq, row.problem, row.detail): row.pk
        for row in VerificationFinding.objects.filter(at, problem__in=problems)
    }
    new = {_place(damage): damage for damage in found if _place(damage) not in known}
    again = [known[_place(damage)] for damage in found if _place(damage) in known]
    with transaction.atomic():
        # A later run has found it, too: the finding stays with that run.
        VerificationFinding.objects.filter(_before(run), pk__in=again).update(run=run)
        VerificationFinding.objects.bulk_create(_rows(run, new.values()))
        _show({damage.conversation_pk for damage in new.values()})


def _before(run: VerificationRun) -> Q:
    """Match findings of runs that began before this one."""
    return Q(run__lt=run.pk) | Q(run=None)


def _place(damage: Damage) -> tuple[int | None, int | None, str, str]:
    return damage.conversation_pk, damage.seq, damage.problem.value, damage.detail


def _rows(run: VerificationRun, found: Iterable[Damage]) -> list[VerificationFinding]:
    return [
        VerificationFinding(
            run=run,
            conversation_id=damage.conversation_pk,
            seq=damage.seq,
            problem=damage.problem,
            detail=damage.detail,
        )
        for damage in found
    ]


def _show(pks: Collection[int | None]) -> None:
    """Write the damage of these conversations into their rows, and notify their readers."""
    there = [pk for pk in pks if pk is not None]
    shown: dict[int, list[dict[str, object]]] = defaultdict(list)
    rows = VerificationFinding.objects.filter(conversation__in=there, problem__in=SHOWN_TO_READERS)
    for row in rows.order_by("seq", "pk"):
        if len(places := shown[row.conversation_id or 0]) < SHOWN_MAX:
            places.append({"seq": row.seq, "problem": row.problem, "detail": row.detail})
    now = timezone.now()
    # In the order in which all transactions lock them.
    for conversation in Conversation.objects.filter(pk__in=there).order_by("pk"):
        conversation.damage = shown.get(conversation.pk)
        conversation.listed_at = now
        conversation.save(update_fields=["damage", "listed_at"])
        transaction.on_commit(partial(live.announce_changed, conversation.ref), robust=True)
