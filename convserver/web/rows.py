"""The list of conversations as HTML: a page of rows, sub-conversations, or rows by their ids."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from conversations.cursors import InvalidCursor
from convserver.web.listing import ORDER_COOKIE, Filters, page_of, remember_order, rows_by_ids
from convserver.web.pages import person, words

IDS_MAX = 50


class TooManyIds(ValueError):
    """The request has too many ids."""


@require_safe
@person
def rows(request: HttpRequest) -> HttpResponse:
    """Return a page of rows, the sub-conversations of one conversation, or the matching rows of the ids."""
    try:
        shown = _asked_for(request)
    except (InvalidCursor, TooManyIds) as error:
        return words(str(error), status=400)
    # A further page is appended to the rows that the browser has; all else replaces them.
    template = "web/rows_page.html" if "page_id" in request.GET else "web/rows.html"
    return remember_order(request, render(request, template, {"list": shown}))


def _asked_for(request: HttpRequest) -> dict[str, Any]:
    filters = Filters.read(request.GET, request.COOKIES.get(ORDER_COOKIE, ""))
    if ids := request.GET.getlist("id"):
        if len(ids) > IDS_MAX:
            raise TooManyIds(f"At most {IDS_MAX} rows can be requested at once, not {len(ids)}.")
        return {"rows": rows_by_ids(request.user, filters, ids), "by_ids": True}
    return page_of(request.user, filters, page_id=request.GET.get("page_id"))
