"""Verifications of the store, and the damage that they found."""

from __future__ import annotations

from django.contrib import admin

from conversations.models import DamageKind, Outcome, VerificationFinding, VerificationRun
from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.cells import column


@admin.register(VerificationFinding)
class VerificationFindingAdmin(ReadOnlyAdmin[VerificationFinding]):
    """Every damaged place that no verification since has found mended, newest first."""

    list_display = fields = ("found", "in_conversation", "place", "what", "detail")
    list_display_links = None
    list_filter = (
        filters.form_of(
            conversation=filters.text("Conversation", "conversation__public_id"),
            problem=filters.choice("Problem", DamageKind.choices, "problem"),
        ),
    )
    list_select_related = ("conversation",)

    found = column("First found (UTC)", "found_at", cells.moment)
    in_conversation = column("Conversation", "conversation", cells.link)
    place = column("Event", "seq")
    what = column("Problem", lambda finding: finding.get_problem_display())


@admin.register(VerificationRun)
class VerificationRunAdmin(ReadOnlyAdmin[VerificationRun]):
    """Every verification, newest first: its progress while it runs, and its result."""

    list_display = ("started", "why", "covers", "result", "progress", "read", "took", "problems_shown")
    list_display_links = None
    fields = (*list_display, "detail", "by")

    started = column("Started (UTC)", "started_at", cells.moment)
    why = column("Occasion", lambda run: run.get_occasion_display())
    result = column("Result", lambda run: run.get_outcome_display())
    problems_shown = column("Damaged places", "problems", cells.number)
    by = column("By process", lambda run: cells.process(run.pid, run.host))

    @admin.display(description="Progress")
    def progress(self, run: VerificationRun) -> str | None:
        if run.outcome != Outcome.RUNNING or not run.expected:
            return None
        # The number expected is an estimate, and the last conversation is not the end.
        return f"{min(99, 100 * run.conversations // run.expected)} %"

    @admin.display(description="Read")
    def read(self, run: VerificationRun) -> str:
        return f"{cells.counted(run.conversations, 'conversation')}, {cells.counted(run.events, 'event')}"

    @admin.display(description="Took")
    def took(self, run: VerificationRun) -> str:
        until = run.finished_at or max(run.updated_at, run.started_at)
        return cells.lasting(until - run.started_at)
