"""A verification as a sequence of checks, each of which decides about some problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from conversations.models import ConversationQuerySet, DamageKind
from conversations.verification import columns, derived, logs, store
from conversations.verification.records import RunRecord
from conversations.verification.store import VerificationStep
from sessions_app.verification import leases

GENERAL = frozenset({DamageKind.GUARD})
"""What the check of all logs examines beside them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check: its steps, and the kinds of problems that it examines completely."""

    steps: Callable[[], Iterator[VerificationStep]]
    examined: frozenset[DamageKind] = frozenset()
    """Empty for a check of samples."""


def checks(
    rows: ConversationQuerySet | None = None, *, with_columns: bool = False, whole_search: bool = False
) -> list[Check]:
    """Return the checks of these conversations; without any, of the whole store and its derived data."""
    # Known damage counts as repaired only after a complete check.
    whole_search = whole_search or (rows is None and derived.is_damaged())
    found = [
        Check(
            steps=lambda: store.steps(rows),
            examined=logs.EXAMINED if rows is not None else logs.EXAMINED | GENERAL,
        ),
        Check(steps=lambda: leases.steps(rows), examined=leases.EXAMINED),
    ]
    if with_columns:
        found.append(Check(steps=lambda: columns.steps(rows), examined=columns.EXAMINED))
    if rows is None or whole_search:
        found.append(
            Check(
                steps=lambda: derived.steps(everything=whole_search),
                examined=derived.EXAMINED if whole_search else frozenset(),
            )
        )
    return found


def run(record: RunRecord, made: list[Check], rows: ConversationQuerySet | None = None) -> Iterator[None]:
    for check in made:
        is_whole = True
        for step in check.steps():
            record.take(step)
            is_whole = is_whole and not step.is_cut_short
            yield
        if check.examined and is_whole:
            record.mend(check.examined, rows)
            yield
