"""The common base of the admin's lists and pages: no totals, no editing by mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from django.contrib import messages
from django.contrib.admin import ShowFacets
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet, TextField
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from conversations.models import Conversation
from conversations.server_log import ids_of, log_act
from convserver.admin.filters import FormFilter
from convserver.admin.pages import KeysetChangeList, UncountedPaginator
from convserver.admin.widgets import ModelAdmin, TextInput

Row = TypeVar("Row", bound=Model)
StaffPages = dict[str, tuple[str, Callable[..., HttpResponseBase]]]
"""By route: the name and the view of a page."""


class ListAdmin(ModelAdmin[Row]):
    """Lists of any length: paged by key, and never counted.

    A list is ordered by `keyset`, each column descending; the last one is unique.
    """

    # Unfold and Django would count rows, offer to select all of them, and sort by columns without an index.

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
        return tuple(f"-{name}" for name in self.keyset)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Row | None:
        # PostgreSQL fails on a text with a zero byte, which no id has.
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # Only the list's filters. Any other look-up could reveal hidden values bit by bit.
        filters = (
            each for each in self.list_filter if isinstance(each, type) and issubclass(each, FormFilter)
        )
        return any(lookup in each.criteria for each in filters)

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Return whether the visitor may use the actions that ask for the permission to change rows."""
        return may_change(request, self.model)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field is not None and isinstance(db_field, TextField):
            field.widget = TextInput()  # texts without a limit of length are names here, not paragraphs
            field.empty_value = None if db_field.null else ""  # a form cannot tell an empty text from none
        if field is not None and db_field.name in _columns_of(self.model):
            # The form carries what it showed, so that only what was edited in it counts as changed.
            field.show_hidden_initial = request.method != "POST" or f"initial-{db_field.name}" in request.POST
        return field

    def save_model(self, request: HttpRequest, obj: Row, form: Any, change: bool) -> None:
        if change:
            # The form may be old: the other columns can have changed since it was opened.
            obj.save(update_fields=edited_columns(form))
        else:
            super().save_model(request, obj, form, change)

    # The entries of the admin's log are lines of the server's log, too.

    def log_addition(self, request: HttpRequest, obj: Row, message: Any) -> LogEntry:
        log_row(request, obj, "Added")
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Row, message: Any) -> LogEntry:
        parts = message if isinstance(message, list) else []
        fields = ",".join(name for part in parts for name in part.get("changed", {}).get("fields", ()))
        log_row(request, obj, "Changed", fields=fields or None)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Row]) -> Any:
        for row in queryset:
            log_row(request, row, "Deleted")
        return super().log_deletions(request, queryset)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Row], *args: Any
    ) -> HttpResponse | None:
        """Run an action, unless a key is none that a row can have."""
        # The framework, or PostgreSQL, would fail on such a key.
        column: Any = getattr(self.opts.pk, "target_field", self.opts.pk)
        try:
            for key in request.POST.getlist(ACTION_CHECKBOX_NAME):
                column.run_validators(column.to_python(key))
        except ValidationError:
            self.message_user(request, "Nothing was done. Select rows in the list.", messages.WARNING)
            return None
        return super().response_action(request, queryset, *args)


class ReadOnlyAdmin(ListAdmin[Row]):
    """Rows that the server writes; staff change them by actions alone, each with its own permission."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Row | None = None) -> bool:
        return False


def staff_pages(model_admin: ModelAdmin[Any], pages: StaffPages) -> list[URLPattern]:
    """Return the addresses of own pages, for staff only as all pages of the admin."""
    prefix = f"{model_admin.opts.app_label}_{model_admin.opts.model_name}"
    guard = model_admin.admin_site.admin_view
    return [
        path(route, guard(partial(view, admin=model_admin)), name=f"{prefix}_{name}")
        for route, (name, view) in pages.items()
    ]


def staff_page(
    request: HttpRequest, admin: ModelAdmin[Any], template: str, title: str, **context: Any
) -> TemplateResponse:
    """Return an own page of the admin, in the frame of all its pages."""
    frame = {**admin.admin_site.each_context(request), "opts": admin.opts, "title": title}
    return TemplateResponse(request, template, frame | context)


def sections(fields: dict[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the fieldsets of a page, from the fields of each section by its title."""
    return tuple((title or None, {"fields": names}) for title, names in fields.items())


def edited_columns(form: Any) -> list[str]:
    """Return the columns that were edited in a form, and those that note the time of a change."""
    columns = _columns_of(form._meta.model)
    edited = [name for name in form.changed_data if name in columns]
    return [*edited, *(name for name, column in columns.items() if getattr(column, "auto_now", False))]


def _columns_of(model: type[Model]) -> dict[str, Any]:
    return {column.name: column for column in model._meta.concrete_fields}


def log_row(request: HttpRequest, row: Model, action: str, **facts: object) -> None:
    """Write an act of a member of staff on a row to the server's log."""
    log_act(f"Admin: {action}", by_user=request.user.pk, row=row._meta.label_lower, key=row.pk, **facts)


def record_act(request: HttpRequest, conversations: Sequence[Conversation], action: str) -> None:
    """Add an entry to the admin's log for each conversation, and a line to the server's log."""
    _enter(request, conversations, action)
    for conversation in conversations:
        log_act(f"Admin: {action}", by_user=request.user.pk, **ids_of(conversation.ref))


def record_change(request: HttpRequest, row: Model, action: str) -> None:
    """Store an entry about a change of a row that is no conversation."""
    _enter(request, [row], action)
    log_row(request, row, action)


def _enter(request: HttpRequest, rows: Sequence[Model], action: str) -> None:
    if rows:
        LogEntry.objects.log_actions(request.user.pk, rows, CHANGE, action)  # type: ignore[arg-type]


def may_change(request: HttpRequest, model: type[Model]) -> bool:
    """Return whether this member of staff has the `change` permission, which actions ask for."""
    return request.user.has_perm(f"{model._meta.app_label}.change_{model._meta.model_name}")


def may_read(request: HttpRequest) -> bool:
    """Return whether this member of staff may read events, which is a permission of its own."""
    return request.user.has_perm("conversations.view_event")


def may_purge(request: HttpRequest) -> bool:
    """Return whether the visitor may purge, which cannot be undone and has a permission of its own."""
    return request.user.has_perm("conversations.add_purge")
