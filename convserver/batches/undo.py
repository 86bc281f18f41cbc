"""A change that can be undone, as a signed text, so that nothing is stored for an undo that never comes."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from django.core import signing

from conversations.exceptions import ConversationError

UNDO_S = 3_600  # the text cannot be revoked, so it ends by itself
_SALT = "convserver.batches.undo"


class CannotUndo(ConversationError):
    """The text is not one that this server gave to this user within the last hour."""

    code: ClassVar[str] = "cannot_undo"


class UndoableChange(NamedTuple):
    """A change of tags or marks, and its conversations."""

    action: str
    name: str
    value: str | None  # the new value of the tag; None where it was removed, and for other actions
    before: dict[str, str | None]
    """By id of each changed conversation: the earlier value of its tag, None for none."""


def written(user_pk: int, change: UndoableChange) -> str:
    """Return the text that undoes a change; only this user can use it."""
    # Compressed: it comes back in a form, with the ids of up to 200 conversations.
    return signing.dumps([user_pk, *change], salt=_SALT, compress=True)


def read(user_pk: int, text: str) -> UndoableChange:
    """Return what `written` was given. Raise CannotUndo."""
    try:
        changed_by, *change = signing.loads(text, salt=_SALT, max_age=UNDO_S)
    except signing.SignatureExpired as error:
        raise CannotUndo("This can't be undone any more: more than an hour has passed.") from error
    except (signing.BadSignature, ValueError) as error:
        raise CannotUndo("This is not the `undo` of a change that was made here.") from error
    if changed_by != user_pk:
        raise CannotUndo("This is not the `undo` of a change that you have made.")
    return UndoableChange(*change)
