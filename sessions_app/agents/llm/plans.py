"""Plans: what a planning conversation sees of its parent, and the parent of it."""

from __future__ import annotations

from collections.abc import Iterator

from conversations.events import Dialect, EventFilter, EventMatch, Kind
from conversations.log import reads
from conversations.models import Conversation, ConversationRef
from sessions_app.models import RunOptions

PLAN = "plan"
"""The name of the agent that plans."""
MESSAGES_MAX = 30
"""A planning model sees at most this many messages of the parent."""
SHOWN_MAX_CHARS = 20_000  # of each plan, and of all these messages


def _messages_of(*sources: str) -> EventFilter:
    kinds, from_ = frozenset({Kind.MESSAGE}), frozenset(sources)
    matches = (EventMatch(dialect=each, kinds=kinds, sources=from_) for each in Dialect)
    return EventFilter(exclude_hidden=True, any_of=frozenset(matches))


_SAID = _messages_of("user", "agent")
_ANSWERED = _messages_of("agent")


def plans_for(conversation: ConversationRef) -> tuple[str, ...]:
    """Return the last answers of the planning conversations below a conversation, oldest first."""
    # A model sees at most this many plans, the newest ones
    plans_max = 3
    rows = RunOptions.objects.below(conversation, agent=PLAN)[:plans_max]
    found: list[str] = []
    for row in rows:
        answers = reads.search_events(row.conversation.ref, _ANSWERED, newest_first=True, limit=1).events
        found += (answer["text"].strip()[:SHOWN_MAX_CHARS] for answer in answers)
    return tuple(filter(None, reversed(found)))


def said_before(conversation: ConversationRef) -> str:
    """Return the newest messages of the parent conversation; empty without one."""
    row = Conversation.objects.select_related("parent").get(pk=conversation.pk)
    # A conversation that changed hands must not show that of its earlier owner.
    if row.parent is None or row.parent.deleted_at is not None or row.parent.owner_id != row.owner_id:
        return ""
    return "\n\n".join(reversed(list(_newest_messages(row.parent.ref))))


def _newest_messages(conversation: ConversationRef) -> Iterator[str]:
    room = SHOWN_MAX_CHARS
    for event in reads.search_events(conversation, _SAID, newest_first=True, limit=MESSAGES_MAX).events:
        room -= len(event["text"])
        if room < 0:
            return
        yield f"{'User' if event['source'] == 'user' else 'Assistant'}: {event['text']}"
