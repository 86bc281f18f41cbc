"""What every list and page of the admin has in common: no totals, no editing by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from django.contrib import messages
from django.contrib.admin import ShowFacets
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet, TextField
from django.http import HttpRequest, HttpResponse

from convserver.admin.filters import FormFilter
from convserver.admin.look import ModelAdmin, TextInput
from convserver.admin.pages import KeysetChangeList, UncountedPaginator

Row = TypeVar("Row", bound=Model)


class ListAdmin(ModelAdmin[Row]):
    """Lists that are paged by key and never counted, whatever their length.

    A list is ordered by `keyset`, each of it descending; the last must be unique.
    """

    keyset: ClassVar[tuple[str, ...]] = ("pk",)
    list_per_page = 50
    paginator = UncountedPaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    sortable_by = ()
    list_filter_submit = True
    list_disable_select_all = True
    list_fullwidth = True

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Return the one order that pages by key can have."""
        return tuple(f"-{name}" for name in self.keyset)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return what reads a page."""
        return KeysetChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow the filters of this list alone: any other look-up could feel its way to what is not shown."""
        return any(lookup in form_filter.form_class.base_fields for form_filter in self._form_filters())

    def _form_filters(self) -> Iterator[type[FormFilter[Any]]]:
        for each in self.list_filter:
            if isinstance(each, type) and issubclass(each, FormFilter):
                yield each

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Row], *args: Any
    ) -> HttpResponse | None:
        """Run an action; keys that no row can have are nobody's."""
        column: Any = getattr(self.opts.pk, "target_field", self.opts.pk)
        try:
            for key in request.POST.getlist(ACTION_CHECKBOX_NAME):
                column.run_validators(column.to_python(key))
        except ValidationError:
            self.message_user(request, "Nothing was done: choose rows of the list.", messages.WARNING)
            return None
        return super().response_action(request, queryset, *args)


class ReadOnlyAdmin(ListAdmin[Row]):
    """Rows that the server writes: staff may look at them, and change them by no form."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody may."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """Nobody may: actions have permissions of their own."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        """Nobody may."""
        return False


def may_change(request: HttpRequest, model: type[Model]) -> bool:
    """Say whether this member of staff has the `change` permission: what actions ask for."""
    return request.user.has_perm(f"{model._meta.app_label}.change_{model._meta.model_name}")


def one_line(column: Any, field: Any) -> Any:
    """Return a form's field with a text asked for on one line; left empty, a column that may be null is."""
    if isinstance(column, TextField) and field is not None:
        field.widget = TextInput()
        field.empty_value = None if column.null else ""
    return field
