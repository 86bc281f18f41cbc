"""The filters of a list as one form: values are typed in, for listing them would mean reading the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.contrib.admin import ListFilter, ModelAdmin
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from convserver.admin.widgets import Select, TextInput

YES_OR_NO = [("yes", "Yes"), ("no", "No")]

Narrowing = Callable[[Any, Any], Any]
"""A function of the rows and the entered value that returns the rows which match."""


class Criterion(NamedTuple):
    """A field of a list's form, and how its value narrows the list."""

    field: forms.Field
    narrowing: Narrowing


def text(label: str, lookup: str | Narrowing, **options: Any) -> Criterion:
    """Return a criterion that is typed in."""
    field = forms.CharField(label=label, required=False, widget=TextInput(), **options)
    return Criterion(field, _narrowing(lookup))


def choice(label: str, choices: Sequence[tuple[str, str]], lookup: str | Narrowing) -> Criterion:
    """Return a criterion with a few choices, besides any."""
    field = forms.ChoiceField(label=label, required=False, choices=[("", "Any"), *choices], widget=Select())
    return Criterion(field, _narrowing(lookup))


def yes_or_no(label: str, lookup: str, *, yes: bool = True) -> Criterion:
    """Return a criterion that is a question; the answer yes means that the look-up is `yes`."""
    return choice(label, YES_OR_NO, lambda rows, value: rows.filter(**{lookup: (value == "yes") is yes}))


def day(label: str, lookup: Narrowing) -> Criterion:
    """Return a criterion that is a day in UTC; the browser brings its own calendar."""
    field = forms.DateField(label=label, required=False, widget=TextInput({"type": "date"}))
    return Criterion(field, lookup)


def since(column: str, label: str = "From (UTC)") -> Criterion:
    """Return the criterion that a column of times is not before a day."""
    return day(label, lambda rows, value: rows.filter(**{f"{column}__gte": _start_of(value)}))


def until(column: str, label: str = "Through (UTC)") -> Criterion:
    """Return the criterion that a column of times is not after a day."""

    def narrowed(rows: Any, value: date) -> Any:
        # The last day of the calendar has no next one.
        return (
            rows.filter(**{f"{column}__lt": _start_of(value + timedelta(days=1))})
            if value < date.max
            else rows
        )

    return day(label, narrowed)


def _start_of(value: date) -> datetime:
    return datetime.combine(value, time.min, UTC)


def _narrowing(lookup: str | Narrowing) -> Narrowing:
    return (lambda rows, value: rows.filter(**{lookup: value})) if isinstance(lookup, str) else lookup


class FormFilter(ListFilter):
    """All filters of one list; empty and invalid fields are ignored."""

    title = "filters"
    template = "admin/filter_form.html"
    criteria: ClassVar[dict[str, Criterion]]

    def __init__(
        self,
        request: HttpRequest,
        params: dict[str, list[str]],
        model: type[Model],
        model_admin: ModelAdmin[Any],
    ) -> None:
        super().__init__(request, params, model, model_admin)
        self.form = forms.Form({name: params.pop(name)[-1] for name in self.criteria if name in params})
        # Copies: a bound field keeps what one visitor has typed.
        self.form.fields = {name: deepcopy(each.field) for name, each in self.criteria.items()}
        self.form.is_valid()  # for what it leaves in `cleaned_data`: an invalid field narrows nothing
        self.wanted = {name: value for name, value in self.form.cleaned_data.items() if value}
        # The template repeats the other parameters of the list's address as hidden fields. The criteria are
        # fields already, and a page of the list as it was filtered before means nothing.
        self.used_parameters = dict.fromkeys([*self.criteria, PAGE_VAR])

    @property
    def is_active(self) -> bool:
        return bool(self.wanted)

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        yield {"form": self.form}

    def expected_parameters(self) -> list[str | None]:
        return list(self.criteria)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        for name, value in self.wanted.items():
            queryset = self.criteria[name].narrowing(queryset, value)
        return queryset


def form_of(**criteria: Criterion) -> type[FormFilter]:
    """Return the filter of a list that is a form with these criteria."""
    return type("ListFormFilter", (FormFilter,), {"criteria": criteria})
