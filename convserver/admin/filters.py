"""The filters of a list as one form: values are typed in, for listing them would mean reading the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

from django import forms
from django.contrib.admin import ListFilter, ModelAdmin
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from convserver.admin.widgets import Select, TextInput

Rows = TypeVar("Rows", bound=QuerySet[Any])

ANY = ("", "Any")
YES_OR_NO = [ANY, ("yes", "Yes"), ("no", "No")]


def text_field(label: str, **options: Any) -> forms.CharField:
    """Return a field that is typed in."""
    return forms.CharField(label=label, required=False, widget=TextInput(), **options)


def choice_field(label: str, choices: Sequence[tuple[str, str]]) -> forms.ChoiceField:
    """Return a field with a few choices; the first is to choose none."""
    return forms.ChoiceField(label=label, required=False, choices=choices, widget=Select())


def date_field(label: str) -> forms.DateField:
    """Return a field for a day, UTC; the browser brings its own calendar."""
    return forms.DateField(label=label, required=False, widget=TextInput({"type": "date"}))


class FormFilter(ListFilter, Generic[Rows]):
    """All filters of one list; what is left empty or cannot be read filters nothing."""

    title = "filters"
    template = "admin/filter_form.html"
    form_class: ClassVar[type[forms.Form]]

    def __init__(
        self,
        request: HttpRequest,
        params: dict[str, list[str]],
        model: type[Model],
        model_admin: ModelAdmin[Any],
    ) -> None:
        super().__init__(request, params, model, model_admin)
        names = self.form_class.base_fields
        self.form = self.form_class({name: params.pop(name)[-1] for name in names if name in params})
        self.form.is_valid()
        self.wanted = {name: value for name, value in self.form.cleaned_data.items() if value}
        # What stands in a list's address besides is kept when the form is sent; these are in the
        # form, and another page of the old filters means nothing to the new ones.
        self.used_parameters = dict.fromkeys([*names, PAGE_VAR])

    @property
    def is_active(self) -> bool:
        """Whether it filters anything."""
        return bool(self.wanted)

    def has_output(self) -> bool:
        """Show the form always."""
        return True

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Hand the form to the template."""
        yield {"form": self.form}

    def expected_parameters(self) -> list[str | None]:
        """Return the names of the form's fields."""
        return list(self.form_class.base_fields)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return what has all the wanted facts."""
        return self.narrowed(cast(Rows, queryset), self.wanted) if self.wanted else queryset

    def narrowed(self, rows: Rows, wanted: dict[str, Any]) -> Rows:
        """Return the rows with the wanted facts: those fields of the form that were filled in."""
        raise NotImplementedError
