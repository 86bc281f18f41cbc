"""The use of models by day, user, model and conversation, with sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.cells import column
from sessions_app.models import ModelUse, ModelUseQuerySet, Used, used_in


@dataclass(frozen=True, slots=True)
class UseSum:
    """One row of a table of sums, in words."""

    title: str
    calls: str
    prompt: str
    completion: str
    cost: str


@dataclass(frozen=True, slots=True)
class UseTable:
    """The sums by one column."""

    title: str
    rows: list[UseSum]


@admin.register(ModelUse)
class ModelUseAdmin(ReadOnlyAdmin[ModelUse]):
    """The use of each model in each conversation, the newest day first, below its sums."""

    keyset = ("day", "pk")
    list_display = fields = ("when", "who", "model", "where", "calls_shown", "prompt", "completion", "cost")
    list_filter = (
        filters.form_of(
            user=filters.text("User", "user__username"),
            model=filters.text("Model", "model"),
            since=filters.day("From (UTC)", lambda rows, day: rows.from_day(day)),
            until=filters.day("Through (UTC)", lambda rows, day: rows.through_day(day)),
        ),
    )
    list_select_related = ("user", "conversation")
    list_before_template = "admin/model_use.html"

    when = column("Day (UTC)", lambda row: row.day.isoformat())
    who = column("User", "user.username")
    where = column("Conversation", "conversation", cells.link)
    calls_shown = column("Calls", "calls", cells.number)
    prompt = column("Input tokens", "prompt_tokens", cells.number)
    completion = column("Output tokens", "completion_tokens", cells.number)
    cost = column("Cost (USD)", lambda row: cost_words(row.used))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        answer = super().changelist_view(request, extra_context)
        if isinstance(answer, TemplateResponse) and answer.context_data is not None:
            rows: Any = answer.context_data["cl"].queryset
            answer.context_data["tables"] = tables(rows)
        return answer


def tables(rows: ModelUseQuerySet) -> list[UseTable]:
    """Return the sums of these rows: all together, and by day, user and model."""
    total = rows.order_by().total()
    if not total.calls:
        return []
    dear = ("-cost_nanos_sum", "-prompt_tokens_sum")  # models without a known price by what they read
    return [
        UseTable("All together", [_sum("Total", total)]),
        _table("Newest days (UTC)", rows.by("day").order_by("-day"), lambda row: row["day"].isoformat()),
        _table("Users", rows.by("user__username").order_by(*dear), lambda row: row["user__username"]),
        _table("Models", rows.by("model").order_by(*dear), lambda row: row["model"]),
    ]


def _table(
    title: str, rows: QuerySet[ModelUse, dict[str, Any]], name_of: Callable[[dict[str, Any]], str]
) -> UseTable:
    # Rows in each table of sums: the newest days, and the users and models that have cost the most
    sums_shown = 10
    return UseTable(title, [_sum(name_of(row), used_in(row)) for row in rows[:sums_shown]])


def _sum(title: str, used: Used) -> UseSum:
    return UseSum(
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
