"""Verifications of the store, and the damage that they found."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.utils.safestring import SafeString

from conversations.models import DamageKind, Outcome, VerificationFinding, VerificationRun
from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.filters import FormFilter, text_field
from convserver.admin.overview import lasting


class FindingFilterForm(forms.Form):
    """What damage can be looked for by."""

    conversation = text_field("Conversation")
    problem = forms.ChoiceField(
        required=False, label="Problem", choices=[("", "All problems"), *DamageKind.choices]
    )


class FindingFilter(FormFilter[QuerySet[VerificationFinding]]):
    """Damage by conversation and by what it is."""

    form_class = FindingFilterForm

    def narrowed(
        self, rows: QuerySet[VerificationFinding], wanted: dict[str, Any]
    ) -> QuerySet[VerificationFinding]:
        """Return the damage with the wanted facts."""
        if "conversation" in wanted:
            rows = rows.filter(conversation__public_id=wanted["conversation"])
        if "problem" in wanted:
            rows = rows.filter(problem=wanted["problem"])
        return rows


def _counted(count: int, noun: str) -> str:
    return f"{cells.number(count)} {noun}{'' if count == 1 else 's'}"


@admin.register(VerificationFinding)
class VerificationFindingAdmin(ReadOnlyAdmin[VerificationFinding]):
    """Every damaged place that no verification since has found mended, newest first."""

    list_display = ("found", "in_conversation", "place", "what", "detail")
    list_display_links = None
    list_filter = (FindingFilter,)
    list_select_related = ("conversation",)
    fields = ("found", "in_conversation", "place", "what", "detail")

    @admin.display(description="First found (UTC)")
    def found(self, finding: VerificationFinding) -> SafeString | None:
        """When it was first found."""
        return cells.moment(finding.found_at)

    @admin.display(description="Conversation")
    def in_conversation(self, finding: VerificationFinding) -> SafeString | None:
        """In which conversation, if it is of one."""
        return cells.link(finding.conversation) if finding.conversation else None

    @admin.display(description="Event")
    def place(self, finding: VerificationFinding) -> int | None:
        """At which place of the log."""
        return finding.seq

    @admin.display(description="Problem")
    def what(self, finding: VerificationFinding) -> str:
        """What is wrong."""
        return finding.get_problem_display()


@admin.register(VerificationRun)
class VerificationRunAdmin(ReadOnlyAdmin[VerificationRun]):
    """Every verification, newest first: its progress while it runs, and its result."""

    list_display = ("started", "why", "covers", "result", "progress", "read", "took", "problems_shown")
    list_display_links = None
    fields = (
        *("started", "why", "covers", "result", "progress", "read", "took", "problems_shown", "detail", "by"),
    )

    @admin.display(description="Started (UTC)")
    def started(self, run: VerificationRun) -> SafeString | None:
        """When it began."""
        return cells.moment(run.started_at)

    @admin.display(description="Occasion")
    def why(self, run: VerificationRun) -> str:
        """Why it ran."""
        return run.get_occasion_display()

    @admin.display(description="Result")
    def result(self, run: VerificationRun) -> str:
        """How it ended."""
        return run.get_outcome_display()

    @admin.display(description="Progress")
    def progress(self, run: VerificationRun) -> str | None:
        """How far it has come, if that is known."""
        if run.outcome != Outcome.RUNNING or not run.expected:
            return None
        return f"{min(99, 100 * run.conversations // run.expected)} %"

    @admin.display(description="Read")
    def read(self, run: VerificationRun) -> str:
        """How much it has read."""
        return f"{_counted(run.conversations, 'conversation')}, {_counted(run.events, 'event')}"

    @admin.display(description="Took")
    def took(self, run: VerificationRun) -> str:
        """How long it took, or has taken so far."""
        until = run.finished_at or max(run.updated_at, run.started_at)
        return lasting(until - run.started_at)

    @admin.display(description="Damaged places")
    def problems_shown(self, run: VerificationRun) -> str:
        """How many damaged places it found."""
        return cells.number(run.problems)

    @admin.display(description="By process")
    def by(self, run: VerificationRun) -> str:
        """Which process ran it."""
        return f"{run.pid} on {run.host.partition(' ')[0]}"
