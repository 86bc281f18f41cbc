"""What no event may show, of its owner's and of its conversation's: where the values come from, and events
without them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

from django.conf import settings
from django.utils.module_loading import import_string

from conversations import dialects, jsontext, masking
from conversations.events import NewEvent
from conversations.jsontext import InvalidJson
from conversations.masking import NO_MASKS, Masks
from conversations.sql import Found


class SecretValues(ABC):
    """The secret values of users and of conversations: a seam, chosen by CONVERSATION_SECRETS.

    What is found is what is committed at that moment: no secret is known here that is not in the database.
    """

    @abstractmethod
    def find(self, owners: Sequence[int], conversations: Sequence[int]) -> Found:
        """Find the secrets of these users and of these conversations, by their keys and one statement.

        Each row begins with the key of the user and that of the conversation; that of whose it is not is 0.

        The rows may be read later, after the end of a block of `sql.together`.
        """

    @abstractmethod
    def masks(self, secrets: Iterable[tuple[Any, ...]]) -> Masks:
        """Return what hides the values of such rows; one that cannot be read is none.

        They are all of one owner, or of one and one conversation of the same owner's.
        """


@cache
def _values_class(path: str) -> type[SecretValues]:
    return cast(type[SecretValues], import_string(path))


def _values() -> SecretValues:
    return _values_class(settings.CONVERSATION_SECRETS)()


def found(owners: Sequence[int], conversations: Sequence[int]) -> Found:
    """Find the secrets of these users and conversations; their rows are for `masks_for`."""
    return _values().find(owners, conversations)


def masks_for(
    conversations: Iterable[tuple[int, int]], secrets: Iterable[tuple[Any, ...]]
) -> dict[int, Masks]:
    """Return what is to be hidden in conversations, given with their owners, by the conversation's key."""
    rows: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for secret in secrets:
        rows.setdefault((secret[0], secret[1]), []).append(secret)
    return {
        conversation: _masks([*rows.get((owner, 0), ()), *rows.get((0, conversation), ())])
        for conversation, owner in conversations
    }


def masks_of(owner: int, conversation: int | None = None) -> Masks:
    """Return what of a user's is to be hidden, and of a conversation's, as of now."""
    return _masks(found([owner], [] if conversation is None else [conversation]).rows())


def _masks(secrets: Sequence[tuple[Any, ...]]) -> Masks:
    return _values().masks(secrets) if secrets else NO_MASKS


def masked(event: NewEvent, masks: Masks) -> NewEvent:
    """Return the event without the values; itself where none occurs."""
    spans = masks.in_event(event.payload)
    if not spans:
        return event
    payload = masking.replaced(event.payload, spans)
    stamp_offset = event.stamp_offset
    return replace(
        event,
        payload=payload,
        reading=replace(event.reading, text=_text(payload) or masks.hide(event.reading.text)),
        stamp_offset=None if stamp_offset is None else masking.moved(stamp_offset, spans),
    )


def _text(payload: str) -> str:
    """Read the text anew: the one at hand may be cut in the middle of a value."""
    try:
        members = jsontext.members(payload)
    except InvalidJson:  # deeper than this thread can follow
        return ""
    return dialects.read({name: member.value for name, member in members.items()}).text
