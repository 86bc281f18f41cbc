"""The errors of a conversation; callers handle each class differently."""

from __future__ import annotations

from typing import ClassVar


class ConversationError(Exception):
    """The base class; `code` is part of the wires, the text is for people."""

    code: ClassVar[str] = "conversation_error"


class InvalidConversationId(ConversationError):
    """The id cannot name a conversation, for any user."""

    code = "invalid_conversation_id"


class ConversationNotFound(ConversationError):
    """The conversation does not exist, is deleted, or belongs to another user."""

    code = "not_found"


class ConversationDeleted(ConversationNotFound):
    """The same for the owner, who can restore it."""


class InvalidEvent(ConversationError):
    """The payload is not an event of any known wire."""

    code = "invalid_event"


class EventNotFound(ConversationError):
    """There is no such event in the conversation."""

    code = "event_not_found"


class UnknownKind(ConversationError):
    """A filter names a kind of event that no release of the wire has."""

    code = "unknown_kind"


class OtherHistory(ConversationError):
    """The reader has another history than the stored one, and must read from the beginning."""


class CursorAhead(OtherHistory):
    """The reader's cursor lies beyond the end of the log."""

    code = "cursor_ahead"


class HistoryReplaced(OtherHistory):
    """The event at the reader's cursor, or one before it, is another one."""

    code = "history_replaced"


class EventConflict(ConversationError):
    """The event id is already used for other bytes; nothing was stored."""

    code = "conflict"


class Fenced(ConversationError):
    """The writer's loop lost its lease; a newer one may have taken over."""

    code = "fenced"


class ConversationBusy(ConversationError):
    """Another transaction kept the conversation locked for too long; nothing was stored, try again."""

    code = "busy"


class MaskingDeferred(ConversationBusy):
    """Masking the events takes too long under the lock; nothing was stored."""


class TooManyWaiting(ConversationBusy):
    """Too many appends of the same user are waiting; this one was not taken, try again."""

    code = "too_many_waiting"


class ForkUnfinished(ConversationBusy):
    """The conversation is a fork whose events are still being copied."""

    def __init__(self, copied: int, events: int) -> None:
        super().__init__(
            f"The conversation is still being copied: {copied:,} of {events:,} events are here. "
            "Try again later."
        )
        self.copied = copied
        self.events = events


class OutcomeUnknown(ConversationError):
    """The database failed during a commit, so the events may be stored; a repeat is safe."""

    code = "outcome_unknown"


class LoopUnavailable(ConversationError):
    """The conversation's agent loop cannot do this in its present state."""

    code = "loop_unavailable"


class StoreUnavailable(ConversationError):
    """Nothing can be stored now; the text says why."""

    code = "unavailable"


class QuotaExceeded(ConversationError):
    """The user has used up a limit; the text names it and what to do."""

    code = "quota_exceeded"

    def __init__(self, sentence: str, *, retry_after_s: int, is_about_room: bool = False) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s  # when trying again may help, in seconds
        # Whether a stored amount is used up: then stored events can still be repeated.
        self.is_about_room = is_about_room
