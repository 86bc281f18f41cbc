"""Titles that stand until a better one is made: a creation parameter remembers that nobody chose this one."""

from __future__ import annotations

from django.db.models import QuerySet

from conversations.models import CreationParameters

PARAMETER = "title_was_made"
"""The creation parameter that remembers that a title was made, whatever became of it."""
PROVISIONAL = "provisional"
"""Its value as long as the title may be replaced."""
MADE = "made"
"""Its value once a title that was made stands for good; True once somebody has chosen another."""


def is_provisional(conversation_pk: int) -> bool:
    """Say whether the title may still be replaced by one that is made."""
    return _rows(conversation_pk, PROVISIONAL).exists()


def is_made(conversation_pk: int) -> bool:
    """Say whether the title is one that was made, provisional or not: nobody chose it."""
    return _rows(conversation_pk, PROVISIONAL, MADE).exists()


def settle(conversation_pk: int) -> bool:
    """Let the title that was made stand for good; return False if one does already.

    Must be called with the conversation's row locked, as every write to its parameters.
    """
    return _note(_rows(conversation_pk, PROVISIONAL), MADE)


def note_chosen(conversation_pk: int) -> None:
    """Note that somebody has chosen a title, so none that is made takes its place; locked as `settle`."""
    _note(_rows(conversation_pk, PROVISIONAL, MADE), True)


def _note(rows: QuerySet[CreationParameters], value: str | bool) -> bool:
    row = rows.first()
    if row is None:
        return False
    row.parameters[PARAMETER] = value
    row.save(update_fields=["parameters"])
    return True


def _rows(conversation_pk: int, *values: str) -> QuerySet[CreationParameters]:
    return CreationParameters.objects.filter(
        pk=conversation_pk, **{f"parameters__{PARAMETER}__in": list(values)}
    )
