"""Asking a conversation's agent for something to remember (spec V0 §1.6, remember-prompt)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from conversations.dialects import v0
from conversations.events import ConversationRef, EventEnvelope, EventFilter
from conversations.log import reads

SERVICE_ID = "remember_prompt"

_INSTRUCTIONS = """\
Below is a part of a conversation between a user and an agent that works on software. The user wants the
agent to remember what it shows, for all conversations to come. Such knowledge is kept in a file that the
agent reads first, always.

Write the instruction that makes an agent put it there: say in a few sentences which fact, rule or
preference is to be added to that file, in general words that will still be true when this conversation is
forgotten. Leave out what holds for this one task only. Write the instruction between <update_prompt> and
</update_prompt>, and nothing else.

<events>
{events}
</events>"""
_QUESTION = "Write the instruction now."
_ANSWER = re.compile(r"<update_prompt>(.*?)</update_prompt>", re.DOTALL)


def events_around(conversation: ConversationRef, seq: int) -> list[EventEnvelope]:
    """Return the events around `seq`: four up to it, and the five after it."""
    wanted = EventFilter(exclude_hidden=True, exclude_types=v0.NOT_FOR_PROMPTS)
    events_through = 4
    through = reads.search_events(conversation, wanted, last=seq, newest_first=True, limit=events_through)
    events_after = 5
    after = reads.search_events(conversation, wanted, first=seq + 1, limit=events_after)
    return [*reversed(through.events), *after.events]


def question_about(events: Sequence[EventEnvelope]) -> list[dict[str, str]]:
    """Return the messages that ask a model what to remember from these events."""
    told = "\n".join(map(_told, events))
    return [
        {"role": "system", "content": _INSTRUCTIONS.format(events=told)},
        {"role": "user", "content": _QUESTION},
    ]


def _told(event: EventEnvelope) -> str:
    return f"[{event['seq']}] {event['source']}, {event['type']}: {event['text']}"


def instruction_in(answer: str) -> str | None:
    """Return the instruction in the answer; None if it has none."""
    found = _ANSWER.search(answer)
    return found[1].strip() if found else None
