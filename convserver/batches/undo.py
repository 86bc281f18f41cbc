"""A change that can be taken back, as a signed text: nothing is stored for those who never take it back."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from django.core import signing

from conversations import access
from conversations.access import Visitor
from conversations.exceptions import ConversationError

UNDO_S = 3_600
"""So long a change can be taken back."""
_SALT = "convserver.batches.undo"


class CannotUndo(ConversationError):
    """The text is none that this server has given to this user within the last hour."""

    code: ClassVar[str] = "cannot_undo"


class UndoableChange(NamedTuple):
    """What was done, and to which conversations."""

    action: str
    name: str
    """Of the tag."""
    value: str | None
    """That the tag was given; None where it was taken away, and for what is no tag."""
    before: dict[str, str | None]
    """By id of each that changed: the value that its tag had, None for none."""


def written(user: Visitor, change: UndoableChange) -> str:
    """Return the text that takes a change back; only this user can use it."""
    return signing.dumps([access.pk_of(user), *change], salt=_SALT, compress=True)


def read(user: Visitor, text: str) -> UndoableChange:
    """Return what `written` was given. Raise CannotUndo."""
    try:
        user_pk, *change = signing.loads(text, salt=_SALT, max_age=UNDO_S)
    except signing.SignatureExpired as error:
        raise CannotUndo("This can't be undone any more: more than an hour has passed.") from error
    except (signing.BadSignature, ValueError) as error:
        raise CannotUndo("This is not the `undo` of a change that was made here.") from error
    if user_pk != access.pk_of(user):
        raise CannotUndo("This is not the `undo` of a change that you have made.")
    return UndoableChange(*change)
