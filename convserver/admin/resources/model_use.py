"""What models have used: by day, user, model and conversation, with sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.filters import FormFilter, date_field, text_field
from sessions_app.models import ModelUse, ModelUseQuerySet, Used, used_in

SUMS_SHOWN = 10
"""Rows in each table of sums: the newest days, and the users and models that have cost the most."""


class ModelUseFilterForm(forms.Form):
    """What use can be looked for by."""

    user = text_field("User")
    model = text_field("Model")
    since = date_field("From (UTC)")
    until = date_field("Through (UTC)")


class ModelUseFilter(FormFilter[ModelUseQuerySet]):
    """Use by user, model and day."""

    form_class = ModelUseFilterForm

    def narrowed(self, rows: ModelUseQuerySet, wanted: dict[str, Any]) -> ModelUseQuerySet:
        """Return the use with the wanted facts."""
        if "user" in wanted:
            rows = rows.filter(user__username=wanted["user"])
        if "model" in wanted:
            rows = rows.filter(model=wanted["model"])
        if "since" in wanted:
            rows = rows.from_day(wanted["since"])
        if "until" in wanted:
            rows = rows.through_day(wanted["until"])
        return rows


@dataclass(frozen=True, slots=True)
class Sum:
    """One row of a table of sums, in words."""

    title: str
    calls: str
    prompt: str
    completion: str
    cost: str


@dataclass(frozen=True, slots=True)
class Table:
    """The sums by one column."""

    title: str
    rows: list[Sum]


@admin.register(ModelUse)
class ModelUseAdmin(ReadOnlyAdmin[ModelUse]):
    """The use of each model in each conversation, the newest day first, below its sums."""

    keyset = ("day", "pk")
    list_display = ("when", "who", "model", "where", "calls_shown", "prompt", "completion", "cost")
    list_filter = (ModelUseFilter,)
    list_select_related = ("user", "conversation")
    list_before_template = "admin/model_use.html"
    fields = ("when", "who", "model", "where", "calls_shown", "prompt", "completion", "cost")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list with the sums of all its pages above."""
        answer = super().changelist_view(request, extra_context)
        if isinstance(answer, TemplateResponse) and answer.context_data is not None:
            rows: Any = answer.context_data["cl"].queryset
            answer.context_data["tables"] = tables(rows)
        return answer

    @admin.display(description="Day (UTC)")
    def when(self, row: ModelUse) -> str:
        """On which day."""
        return row.day.isoformat()

    @admin.display(description="User")
    def who(self, row: ModelUse) -> str:
        """Whose conversation it was."""
        return row.user.get_username()

    @admin.display(description="Conversation")
    def where(self, row: ModelUse) -> SafeString | None:
        """In which conversation, unless that was removed."""
        return cells.link(row.conversation) if row.conversation else None

    @admin.display(description="Calls")
    def calls_shown(self, row: ModelUse) -> str:
        """How often it was called."""
        return cells.number(row.calls)

    @admin.display(description="Input tokens")
    def prompt(self, row: ModelUse) -> str:
        """How much it has read."""
        return cells.number(row.prompt_tokens)

    @admin.display(description="Output tokens")
    def completion(self, row: ModelUse) -> str:
        """How much it has written."""
        return cells.number(row.completion_tokens)

    @admin.display(description="Cost (USD)")
    def cost(self, row: ModelUse) -> str:
        """What it has cost."""
        return cost_words(row.used)


def tables(rows: ModelUseQuerySet) -> list[Table]:
    """Return the sums of these rows: all together, and by day, user and model."""
    total = rows.order_by().total()
    if not total.calls:
        return []
    dear = ("-cost_nanos_sum", "-prompt_tokens_sum")
    return [
        Table("All together", [_sum("Total", total)]),
        _table("Newest days (UTC)", rows.by("day").order_by("-day"), lambda row: row["day"].isoformat()),
        _table("Users", rows.by("user__username").order_by(*dear), lambda row: row["user__username"]),
        _table("Models", rows.by("model").order_by(*dear), lambda row: row["model"]),
    ]


def _table(
    title: str, rows: QuerySet[ModelUse, dict[str, Any]], name_of: Callable[[dict[str, Any]], str]
) -> Table:
    return Table(title, [_sum(name_of(row), used_in(row)) for row in rows[:SUMS_SHOWN]])


def _sum(title: str, used: Used) -> Sum:
    return Sum(
        title=title,
        calls=f"{cells.number(used.calls)} {'call' if used.calls == 1 else 'calls'}",
        prompt=f"{cells.number(used.prompt_tokens)} tokens in",
        completion=f"{cells.number(used.completion_tokens)} out",
        cost="cost unknown" if used.is_unpriced else f"${cost_words(used)}",
    )


def cost_words(used: Used) -> str:
    """Return a cost in US dollars, and for how many calls it is unknown."""
    if not used.unpriced_calls:
        return f"{used.dollars:.4f}"
    unknown = f"unknown for {cells.number(used.unpriced_calls)}"
    return "unknown" if used.is_unpriced else f"{used.dollars:.4f}, {unknown}"
