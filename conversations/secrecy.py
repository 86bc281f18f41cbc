"""What of an owner's no event may show: where the values come from, and events without them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any, cast

from django.conf import settings
from django.utils.module_loading import import_string

from conversations import dialects, jsontext, masking
from conversations.events import NewEvent
from conversations.jsontext import InvalidJson
from conversations.masking import NO_MASKS, Masks
from conversations.sql import Found


class SecretValues(ABC):
    """The secret values of users: a seam, chosen by CONVERSATION_SECRETS.

    What is found is what is committed at that moment: no secret is known here that is not in the database.
    """

    @abstractmethod
    def find(self, owners: Sequence[int]) -> Found:
        """Find the secrets of these users by one statement, each with its owner's key first.

        The rows may be read later, after the end of a block of `sql.together`.
        """

    @abstractmethod
    def masks(self, secrets: Iterable[tuple[Any, ...]]) -> Masks:
        """Return what hides the values of such rows, all of one owner; one that cannot be read is none."""


@cache
def _values_class(path: str) -> type[SecretValues]:
    return cast(type[SecretValues], import_string(path))


def _values() -> SecretValues:
    return _values_class(settings.CONVERSATION_SECRETS)()


def found(owners: Sequence[int]) -> Found:
    """Find the secrets of these users; their rows are for `masks_by_owner`."""
    return _values().find(owners)


def masks_by_owner(secrets: Iterable[tuple[Any, ...]]) -> dict[int, Masks]:
    """Return what is to be hidden, by the owner's key; owners without secrets are left out."""
    rows = sorted(secrets, key=_owner)
    return {owner: _values().masks(own) for owner, own in groupby(rows, key=_owner)}


def masks_of(owner: int) -> Masks:
    """Return what of a user's is to be hidden, as of now."""
    return masks_by_owner(found([owner]).rows()).get(owner, NO_MASKS)


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


def _owner(secret: tuple[Any, ...]) -> int:
    return int(secret[0])
