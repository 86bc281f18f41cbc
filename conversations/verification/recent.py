"""The bounded check of recent changes: the ends of the logs with the newest events."""

from __future__ import annotations

import time
from collections.abc import Iterator

from conversations.models import Conversation, Event
from conversations.verification import logs
from conversations.verification.logs import LogCheck
from conversations.verification.rows import HEADS, LogHead, heads_of, of_one
from conversations.verification.store import VerificationStep, confirmed, lost_guards, newest_event

EVENTS_OF_ONE = 1_000  # about the most events that are read at the end of one log
EVENTS_MAX = 20_000
TIME_MAX_S = 5.0


def steps(since: int) -> Iterator[VerificationStep]:
    """Verify the ends of the logs that have events with keys above `since`, the newest ones first.

    End after EVENTS_MAX events or TIME_MAX_S, even if more are left.
    """
    yield VerificationStep(found=lost_guards())
    ends_at, events = time.monotonic() + TIME_MAX_S, 0
    for head in _changed(since):
        check, step_events, first = LogCheck(head), 0, max(0, head.next_seq - EVENTS_OF_ONE)
        if first:
            before = Event.objects.of_key(head.pk).filter(seq=first - 1).values_list("digest", flat=True)
            check = LogCheck(head, first=first, digest=before.first())
        for page in of_one(head, logs.COLUMNS, first=first):
            for row in page:
                check.take(row)
            step_events += len(page)
        events += step_events
        yield VerificationStep(1, step_events, confirmed(list(check.finish()), [head]))
        if events >= EVENTS_MAX or time.monotonic() >= ends_at:
            return


def _changed(since: int) -> list[LogHead]:
    newest = newest_event()
    # At most this many of the newest events say which conversations changed
    newest_events = 10_000
    recent = Event.objects.filter(pk__gt=max(since, newest - newest_events)).order_by("-pk")
    pks = list(dict.fromkeys(recent.values_list("conversation_id", flat=True)))[:HEADS]
    heads = {head.pk: head for head in heads_of(Conversation.objects.filter(pk__in=pks))}
    return [heads[pk] for pk in pks if pk in heads]
