"""Compute digests of events as they were before their secrets were masked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REPLACES = "conversations.log.append._take"


def bug(take: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that chains what was sent."""
    from conversations.log import append
    from conversations.redaction.masking import MASK

    def of_clear_text(heads: Any, request: Any, rows: list[Any], *args: Any, **options: Any) -> Any:
        pk, first = request.conversation.pk, len(rows)
        digest = heads[pk].head_digest if pk in heads else ""
        outcome = take(heads, request, rows, *args, **options)
        sent = {event.event_id: event.payload for event in request.events}
        for place in range(first, len(rows)):
            row = rows[place]
            clear = sent[row.event_id] if MASK in row.payload else row.payload
            digest = append.chain(digest, seq=row.seq, event_id=row.event_id, payload=clear)
            rows[place] = row._replace(digest=digest)
            heads[pk].head_digest = digest
        return outcome

    return of_clear_text
