"""What every list and page of the admin has in common: no totals, no editing by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from django.contrib import messages
from django.contrib.admin import ShowFacets
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet, TextField
from django.http import HttpRequest, HttpResponse

from conversations.server_log import log_act
from convserver.admin.filters import FormFilter
from convserver.admin.pages import KeysetChangeList, UncountedPaginator
from convserver.admin.widgets import ModelAdmin, TextInput

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

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Let a form carry what it showed, so that only what was edited in it counts as changed."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field is not None and db_field.name in _columns_of(self.model):
            field.show_hidden_initial = request.method != "POST" or f"initial-{db_field.name}" in request.POST
        return field

    def save_model(self, request: HttpRequest, obj: Row, form: Any, change: bool) -> None:
        """Write the columns that were edited: a form is an old copy of all others by now."""
        if change:
            obj.save(update_fields=edited_columns(form))
        else:
            super().save_model(request, obj, form, change)

    def log_addition(self, request: HttpRequest, obj: Row, message: Any) -> LogEntry:
        """Note it in the server's log, too."""
        log_row(request, obj, "Added")
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Row, message: Any) -> LogEntry:
        """Note it in the server's log, too."""
        log_row(request, obj, "Changed", fields=_fields_in(message))
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Row]) -> Any:
        """Note it in the server's log, too."""
        for row in queryset:
            log_row(request, row, "Deleted")
        return super().log_deletions(request, queryset)

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
            self.message_user(request, "Nothing was done. Select rows in the list.", messages.WARNING)
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


def edited_columns(form: Any) -> list[str]:
    """Return the columns of a form's row that were edited in it, and that note when that was."""
    columns = _columns_of(form._meta.model)
    edited = [name for name in form.changed_data if name in columns]
    return [*edited, *(name for name, column in columns.items() if getattr(column, "auto_now", False))]


def _columns_of(model: type[Model]) -> dict[str, Any]:
    return {column.name: column for column in model._meta.concrete_fields}


def log_row(request: HttpRequest, row: Model, action: str, **facts: object) -> None:
    """Write to the server's log that this member of staff did something with a row."""
    log_act(f"Admin: {action}", by_user=request.user.pk, row=row._meta.label_lower, key=row.pk, **facts)


def _fields_in(message: Any) -> str | None:
    """Return the names of the fields that a form has changed, of the framework's message about it."""
    parts = message if isinstance(message, list) else []
    return ",".join(name for part in parts for name in part.get("changed", {}).get("fields", ())) or None


def may_change(request: HttpRequest, model: type[Model]) -> bool:
    """Say whether this member of staff has the `change` permission: what actions ask for."""
    return request.user.has_perm(f"{model._meta.app_label}.change_{model._meta.model_name}")


def one_line(column: Any, field: Any) -> Any:
    """Return a form's field with a text asked for on one line; left empty, a column that may be null is."""
    if isinstance(column, TextField) and field is not None:
        field.widget = TextInput()
        field.empty_value = None if column.null else ""
    return field
