"""Redaction: where the secret values of owners and conversations come from, and how events lose them."""

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

    Its methods return what is committed at that moment: only secrets in the database are known.
    """

    @abstractmethod
    def find(self, owners: Sequence[int], conversations: Sequence[int]) -> Found:
        """Find the secrets of these users and of these conversations, by their keys and with one statement.

        Each row begins with the keys of the user and of the conversation; the key that does not apply is 0.
        The rows may be read later, after the end of a block of `sql.together`.
        """

    @abstractmethod
    def masks(self, secrets: Iterable[tuple[Any, ...]]) -> Masks:
        """Return the masks for such rows; an unreadable secret is skipped.

        All rows belong to one owner, or to one owner and one of their conversations.
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
    """Return the masks of conversations, given with their owners, by the conversation's key."""
    rows: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for secret in secrets:
        rows.setdefault((secret[0], secret[1]), []).append(secret)
    return {
        conversation: _masks([*rows.get((owner, 0), ()), *rows.get((0, conversation), ())])
        for conversation, owner in conversations
    }


def masks_of(owner: int, conversation: int | None = None) -> Masks:
    """Return the present masks of a user and a conversation."""
    return _masks(found([owner], [] if conversation is None else [conversation]).rows())


def _masks(secrets: Sequence[tuple[Any, ...]]) -> Masks:
    return _values().masks(secrets) if secrets else NO_MASKS


def masked(event: NewEvent, masks: Masks) -> NewEvent:
    """Return the event without the values; the same object if it contains none."""
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
    """Derive the text again: the present one may be cut in the middle of a value."""
    try:
        members = jsontext.members(payload)
    except InvalidJson:  # nested too deeply for this thread's stack
        return ""
    return dialects.read({name: member.value for name, member in members.items()}).text
