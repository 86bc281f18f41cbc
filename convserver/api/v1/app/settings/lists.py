"""Pages of short lists that are known whole: of names, by the last name of the page before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from convserver.api.openhands.text import StorableText
from convserver.pagination import PAGE_MAX

T = TypeVar("T")


class NameQuery(BaseModel):
    """Which page of a list of names to return."""

    page_id: Annotated[StorableText, Field(max_length=1000)] | None = None
    limit: int = Field(default=PAGE_MAX, ge=1, le=PAGE_MAX)


def page_of(rows: Sequence[T], query: NameQuery, name: Callable[[T], str]) -> tuple[list[T], str | None]:
    """Return the rows behind `page_id`, and the id of the next page; rows are in the order of their names."""
    # By the name and not by its place: what is removed meanwhile shifts no page.
    rest = [row for row in rows if query.page_id is None or name(row) > query.page_id]
    page = rest[: query.limit]
    return page, name(page[-1]) if len(rest) > len(page) else None
