"""The orders in which people read a list of conversations, each with an index of its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import CharField, F, Func, Q, TextChoices
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

# Characters of a title that count: PostgreSQL refuses entries of an index above some 2,700 bytes.
TITLE_MAX_CHARS = 100


class ListOrder(TextChoices):
    """What a list is ordered by; `value` is part of addresses and cookies."""

    USED = "used", "Last used"
    CREATED = "created", "Created"
    TITLE = "title", "Title"

    @property
    def is_descending(self) -> bool:
        return self is not ListOrder.TITLE

    @property
    def expression(self) -> Combinable:
        """Return what the rows are ordered by, as the index has it."""
        match self:
            case ListOrder.USED:
                return last_used()
            case ListOrder.CREATED:
                return F("created_at")
            case _:
                return SortedTitle()

    def sorting(self) -> list[Any]:
        """Return what to order rows by that have `list_key`."""
        key = F("list_key")
        return [key.desc(), F("pk").desc()] if self.is_descending else [key.asc(), F("pk").asc()]

    def beyond(self, value: datetime | str, pk: int) -> Q:
        """Return the condition for rows with a `list_key` that come after this place."""
        side = "lt" if self.is_descending else "gt"
        further = Q(**{f"list_key__{side}": value}) | Q(list_key=value, **{f"pk__{side}": pk})
        return further & Q(**{f"list_key__{side}e": value})  # redundant, for the index


def last_used() -> Coalesce:
    """Return the time of the newest message, of a person or an agent; of the creation where none is.

    Only messages count: an append without one changes no indexed column, so PostgreSQL can update the row in
    place.
    """
    return Coalesce("last_message_at", "created_at")


class SortedTitle(Func):
    """The beginning of the title that is shown, in lower case.

    Its literals stand in the SQL: an engine does not recognize an indexed expression with parameters.
    """

    output_field = CharField()

    def __init__(self, *columns: Any, **extra: Any) -> None:
        super().__init__(*(columns or (F("title"), F("public_id"))), **extra)

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **context: Any) -> Any:
        title, public_id = (compiler.compile(each)[0] for each in self.get_source_expressions())
        shown = f"COALESCE(NULLIF({title}, ''), 'Conversation ' || {public_id})"
        return f"SUBSTR(LOWER({shown}), 1, {TITLE_MAX_CHARS})", []
