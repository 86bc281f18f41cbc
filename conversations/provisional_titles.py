"""Generated titles, provisional or final: a creation parameter records that no user chose the title."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from conversations.models import ConversationQuerySet, CreationParameters

# The creation parameter that records that a title was generated, whatever the outcome.
PARAMETER = "title_was_made"
PROVISIONAL = "provisional"  # its value as long as the title may be replaced
MADE = "made"  # its value once a generated title is final; True once a user has chosen another


def is_provisional(conversation_pk: int) -> bool:
    """Return whether a generated title may still replace this one."""
    return _rows(conversation_pk, PROVISIONAL).exists()


def is_made(conversation_pk: int) -> bool:
    """Return whether the title was generated, provisional or not, and not chosen by a user."""
    return _rows(conversation_pk, PROVISIONAL, MADE).exists()


def noted(rows: ConversationQuerySet) -> ConversationQuerySet:
    """Annotate the rows with `is_title_made`, the value of `is_made`."""
    return rows.annotate(is_title_made=Exists(_rows(OuterRef("pk"), PROVISIONAL, MADE)))


def settle(conversation_pk: int) -> bool:
    """Make the generated title final; return False if one already is.

    Must be called with the conversation's row locked, like every write to its parameters.
    """
    return _note(_rows(conversation_pk, PROVISIONAL), MADE)


def note_chosen(conversation_pk: int) -> None:
    """Record that a user has chosen a title, so no generated one replaces it; lock as for `settle`."""
    _note(_rows(conversation_pk, PROVISIONAL, MADE), True)


def note_derived(conversation_pk: int) -> None:
    """Record that the title came from the messages or another program; lock as for `settle`.

    A provisional title stays provisional.
    """
    if not is_made(conversation_pk):
        row, _ = CreationParameters.objects.get_or_create(conversation_id=conversation_pk)
        row.parameters[PARAMETER] = MADE
        row.save(update_fields=["parameters"])


def _note(rows: QuerySet[CreationParameters], value: str | bool) -> bool:
    row = rows.first()
    if row is None:
        return False
    row.parameters[PARAMETER] = value
    row.save(update_fields=["parameters"])
    return True


def _rows(conversation_pk: int | OuterRef, *values: str) -> QuerySet[CreationParameters]:
    return CreationParameters.objects.filter(
        pk=conversation_pk, **{f"parameters__{PARAMETER}__in": list(values)}
    )
