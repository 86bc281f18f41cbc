"""Pages of lists without a total: each begins where another ended, and reads one row more than it shows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.contrib.admin.views.main import PAGE_VAR
from django.core.exceptions import ValidationError
from django.db.models import Field, Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from convserver.admin.filters import FormFilter
from convserver.admin.widgets import AnyPage, AnyPaginator, ChangeList

OLDER = "older"
NEWER = "newer"


class PageStart(NamedTuple):
    """Where a page begins: beyond the row with these values, on this side of it."""

    side: str
    values: tuple[Any, ...]

    @classmethod
    def read(cls, text: str, fields: Sequence[Field[Any, Any]]) -> PageStart | None:
        """Return what `written` wrote; None for any other text, which means the first page."""
        side, *values = text.split(",")
        if side not in (OLDER, NEWER) or len(values) != len(fields) or "\0" in text:
            return None
        try:
            return cls(
                side,
                tuple(field.to_python(value) for field, value in zip(fields, values, strict=True)),
            )
        except (ValidationError, ValueError):
            return None

    @staticmethod
    def written(side: str, row: Model, fields: Sequence[Field[Any, Any]]) -> str:
        """Return the beginning of the page beyond this row as text."""
        return ",".join([side, *(field.value_to_string(row) for field in fields)])

    def rows_beyond(self, rows: QuerySet[Any], names: Sequence[str]) -> QuerySet[Any]:
        # (a, b) < (x, y) spelled out, since Django compares no rows: a < x, or a = x and b < y.
        comparison = "lt" if self.side == OLDER else "gt"
        beyond = Q()
        same: dict[str, Any] = {}
        for name, value in zip(names, self.values, strict=True):
            beyond |= Q(**same, **{f"{name}__{comparison}": value})
            same[name] = value
        return rows.filter(beyond)


class KeysetChangeList(ChangeList):
    """A list whose every page costs what the first does."""

    older: str | None  # the query string of the page with older rows; None on the last page
    newer: str | None

    def get_filters(self, request: HttpRequest) -> Any:
        # The framework counts a filter as active because it has a field; the field can be empty.
        specs, has_filters, remaining, duplicates, _ = super().get_filters(request)
        is_active = any(spec.is_active for spec in specs if isinstance(spec, FormFilter))
        return specs, has_filters, remaining, duplicates, is_active

    def get_results(self, request: HttpRequest) -> None:
        # One row more than a page is read, to know whether another page follows.
        names: tuple[str, ...] = getattr(self.model_admin, "keyset", ("pk",))
        fields: list[Any] = [self.opts.pk if name == "pk" else self.opts.get_field(name) for name in names]
        place = PageStart.read(request.GET.get(PAGE_VAR, ""), fields)
        rows = self.queryset.order_by(*(f"-{name}" for name in names))
        upwards = place is not None and place.side == NEWER  # read backwards, then turned round
        if place is not None:
            rows = place.rows_beyond(rows, names)
        found = list((rows.reverse() if upwards else rows)[: self.list_per_page + 1])
        shown, goes_on = found[: self.list_per_page], len(found) > self.list_per_page
        if upwards:
            shown.reverse()
        # The page on the side that the visitor came from exists.
        has_newer, has_older = (goes_on, True) if upwards else (place is not None, goes_on)
        self.newer = self._link(NEWER, shown[0], fields) if shown and has_newer else None
        self.older = self._link(OLDER, shown[-1], fields) if shown and has_older else None
        self.first = self.get_query_string() if place is not None else None
        self.result_list = shown
        self._tell_django(request)

    def _link(self, side: str, row: Model, fields: Sequence[Field[Any, Any]]) -> str:
        return self.get_query_string({PAGE_VAR: PageStart.written(side, row, fields)})

    def _tell_django(self, request: HttpRequest) -> None:
        """Set what templates ask of a list, as if it had this one page."""
        self.result_count = len(self.result_list)
        self.full_result_count = self.result_count
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.show_all = self.multi_page = False
        self.paginator = self.model_admin.get_paginator(request, self.queryset, self.list_per_page)


class UncountedPage(AnyPage):
    """A page that knows whether another follows."""

    goes_on = False

    def has_next(self) -> bool:
        return self.goes_on


class UncountedPaginator(AnyPaginator):
    """Numbered pages without a total, for what asks for them by number (choosing a user by name)."""

    template_name = "admin/older_and_newer.html"

    @cached_property
    def count(self) -> int:
        # The number is not known; no page asks for as many.
        return sys.maxsize

    def page(self, number: int | str) -> UncountedPage:
        valid = int(self.validate_number(number))
        first = (valid - 1) * self.per_page
        found = list(self.object_list[first : first + self.per_page + 1])
        page = UncountedPage(found[: self.per_page], valid, self)
        page.goes_on = len(found) > self.per_page
        return page
