"""Whether a reader's cursor belongs to the stored history.

A log only grows, so a cursor stays valid, unless the database itself was replaced by an older copy or an
empty one. Then the log may end before the cursor, or have grown past it with other events.
"""

from __future__ import annotations

from conversations.cursors import EventCursor, fingerprint
from conversations.exceptions import CursorAhead, HistoryReplaced
from conversations.models import ConversationRef, Event

WHAT_TO_DO = "The history was replaced: drop what you have of it, and read from the beginning (`after=-1`)."


def require_within(cursor: EventCursor, *, last_seq: int) -> None:
    """Raise CursorAhead if the log ends before the cursor."""
    if cursor.seq > last_seq:
        end = f"the last one is {last_seq}" if last_seq >= 0 else "there is none"
        raise CursorAhead(f"You have event {cursor.seq}, but here {end}. {WHAT_TO_DO}")


def require_same(conversation: ConversationRef, cursor: EventCursor) -> None:
    """Raise HistoryReplaced if the log up to the cursor differs from the reader's.

    This takes one query for a cursor with a fingerprint; one without is accepted.
    """
    if cursor.fingerprint is None:
        return
    digest = Event.objects.of(conversation).with_seqs([cursor.seq]).values_list("digest", flat=True).first()
    if digest is None or fingerprint(digest) != cursor.fingerprint:
        raise HistoryReplaced(f"Event {cursor.seq} here is not the one that you have. {WHAT_TO_DO}")
