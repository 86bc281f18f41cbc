"""Plans: what a planning conversation knows of the one that it was started from, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator

from conversations.events import Dialect, EventFilter, EventMatch, Kind
from conversations.log import reads
from conversations.models import Conversation, ConversationRef
from sessions_app.models import RunOptions

PLAN = "plan"
"""The name of the agent that plans."""
PLANS_MAX = 3
"""A model is told at most this many plans, the newest ones."""
PLAN_MAX_CHARS = 20_000
MESSAGES_MAX = 30
"""A planning model is told at most this many messages of the conversation that the plan is for."""
MESSAGES_MAX_CHARS = 20_000

_SAID = EventFilter(
    exclude_hidden=True,
    any_of=frozenset(
        EventMatch(dialect=dialect, kinds=frozenset({Kind.MESSAGE}), sources=frozenset({"user", "agent"}))
        for dialect in Dialect
    ),
)
_ANSWERED = EventFilter(
    exclude_hidden=True,
    any_of=frozenset(
        EventMatch(dialect=dialect, kinds=frozenset({Kind.MESSAGE}), sources=frozenset({"agent"}))
        for dialect in Dialect
    ),
)


def plans_for(conversation: ConversationRef) -> tuple[str, ...]:
    """Return what the planning agents that were started from a conversation have said last, oldest first."""
    rows = RunOptions.objects.below(conversation, agent=PLAN)[:PLANS_MAX]
    found = [_last_answer(row.conversation.ref) for row in rows]
    return tuple(text for text in reversed(found) if text)


def said_before(conversation: ConversationRef) -> str:
    """Return the newest messages of the conversation that this one was started from; empty without one."""
    row = Conversation.objects.select_related("parent").get(pk=conversation.pk)
    if row.parent is None or row.parent.deleted_at is not None or row.parent.owner_id != row.owner_id:
        return ""
    return "\n\n".join(reversed(list(_newest_messages(row.parent.ref))))


def _last_answer(conversation: ConversationRef) -> str:
    found = reads.search_events(conversation, _ANSWERED, newest_first=True, limit=1).events
    return found[0]["text"].strip()[:PLAN_MAX_CHARS] if found else ""


def _newest_messages(conversation: ConversationRef) -> Iterator[str]:
    room = MESSAGES_MAX_CHARS
    for event in reads.search_events(conversation, _SAID, newest_first=True, limit=MESSAGES_MAX).events:
        room -= len(event["text"])
        if room < 0:
            return
        yield f"{'User' if event['source'] == 'user' else 'Assistant'}: {event['text']}"
