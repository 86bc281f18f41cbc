"""The secret values of owners and conversations, and masking them in events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from django.conf import settings
from django.utils.module_loading import import_string

from conversations import dialects
from conversations.events import NewEvent, Reading
from conversations.exceptions import InvalidEvent
from conversations.log.sql import Result
from conversations.payloads import jsontext
from conversations.payloads.jsontext import InvalidJson
from conversations.redaction import masking
from conversations.redaction.masking import NO_MASKS, Masks

# What may be done in the transaction that stores events, while all others wait.
UNDER_LOCK_MAX_CHARS = 16 * 1024  # masking the events of one append that contain secrets
BUILT_MAX_CHARS = 8 * 1024  # building the automata for secrets of this length together


@dataclass(frozen=True, slots=True)
class MaskedEvents:
    """Events masked before their transaction; valid while the secrets stay the same."""

    masks: Masks
    events: Sequence[NewEvent] | InvalidEvent


class MaskingAllowance:
    """The masking that one transaction may still do, while all others wait."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        # Masking those of all appends of the transaction
        transaction_max_chars = 64 * 1024
        self._left = transaction_max_chars

    def covers(self, events: Sequence[NewEvent], masks: Masks) -> bool:
        """Return whether these events may be masked now; count them if so."""
        if not masks:
            return True
        size = sum(len(event.payload) for event in events)
        # Searching the events of one append for traces
        traced_max_chars = 1024 * 1024
        if size > traced_max_chars or (masks.size > BUILT_MAX_CHARS and not masks.is_built):
            return False
        if size > min(self._left, UNDER_LOCK_MAX_CHARS):
            size = sum(len(event.payload) for event in events if masks.may_be_in(event.payload))
        if size > min(self._left, UNDER_LOCK_MAX_CHARS):
            return False
        self._left -= size
        return True


class SecretValues(ABC):
    """The secret values of users and of conversations: a seam, chosen by CONVERSATION_SECRETS.

    Its methods return what is committed at that moment: only secrets in the database are known.
    """

    @abstractmethod
    def find(self, owners: Sequence[int], conversations: Sequence[int]) -> Result:
        """Find the secrets of these users and of these conversations, by their keys and with one statement.

        Each row begins with the keys of the user and of the conversation; the key that does not apply is 0.
        The rows may be read later, after the end of a block of `sql.pipeline`.
        """

    @abstractmethod
    def masks(self, secrets: Iterable[tuple[Any, ...]]) -> Masks:
        """Return the masks for such rows; an unreadable secret is skipped.

        All rows belong to one owner, or to one owner and one of their conversations.
        """


def _values() -> SecretValues:
    # A loaded module is found in `sys.modules`, so this imports nothing twice.
    return cast(SecretValues, import_string(settings.CONVERSATION_SECRETS)())


def found(owners: Sequence[int], conversations: Sequence[int]) -> Result:
    """Return the secrets of these users and conversations as rows for `masks_for`."""
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


def masked_columns(owner: int, conversation: int | None, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of a conversation with the present secrets masked in its title and tags."""
    if not columns.get("title") and not columns.get("tags"):
        return dict(columns)
    return hidden_in_columns(columns, masks_of(owner, conversation))


def hidden_in_columns(columns: Mapping[str, Any], masks: Masks) -> dict[str, Any]:
    """Return columns of a conversation with these values masked in its title and tags."""
    shown = dict(columns)
    if title := columns.get("title"):
        shown["title"] = masks.hide(title)
    if tags := columns.get("tags"):
        shown["tags"] = {masks.hide(name): masks.hide(str(value)) for name, value in tags.items()}
    return shown


def _masks(secrets: Sequence[tuple[Any, ...]]) -> Masks:
    return _values().masks(secrets) if secrets else NO_MASKS


def masked_beforehand(owner: int, conversation: int, events: Sequence[NewEvent]) -> MaskedEvents:
    """Mask events with the present secrets, before the transaction that stores them compares these."""
    masks = masks_of(owner, conversation)
    return MaskedEvents(masks, masked_all(events, masks))


def masked_all(events: Sequence[NewEvent], masks: Masks) -> Sequence[NewEvent] | InvalidEvent:
    """Return the events without the values, or the reason why one of them cannot be stored."""
    if not masks:
        return events
    try:
        return [masked(event, masks) for event in events]
    except InvalidEvent as refusal:
        return refusal


def masked(event: NewEvent, masks: Masks) -> NewEvent:
    """Return the event without the values; the same object if it contains none.

    Raise InvalidEvent for a value in its id or type, and for more than can be masked in bounded time.
    """
    masks.check_id(event.event_id)
    spans = masks.in_event(event.payload)
    if not spans:
        return event
    masks.check_type(event.reading.type)  # its member may be spelled so that it was masked like any other
    payload = masking.replaced(event.payload, spans)
    stamp_offset = event.stamp_offset
    return replace(
        event,
        payload=payload,
        reading=_reading(payload, event.reading, masks),
        stamp_offset=None if stamp_offset is None else masking.moved(stamp_offset, spans),
    )


def _reading(payload: str, clear: Reading, masks: Masks) -> Reading:
    """Derive text and ids again: a cut in the present text may go through a value."""
    try:
        members = jsontext.members(payload)
    except InvalidJson:  # nested too deeply for this thread's stack
        return replace(
            clear,
            text=masks.hide(clear.text),
            tool_call_id=clear.tool_call_id and masks.hide(clear.tool_call_id),
        )
    again = dialects.read({name: member.value for name, member in members.items()})
    return replace(
        clear,
        text=again.text or masks.hide(clear.text),
        tool_call_id=again.tool_call_id or clear.tool_call_id,
    )
