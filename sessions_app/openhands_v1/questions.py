"""Questions to a conversation's agent that add nothing to its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from conversations.events import ConversationRef, Dialect, EventFilter, EventMatch, Kind
from conversations.exceptions import LoopUnavailable
from conversations.log import reads
from sessions_app import astore
from sessions_app.agents.chosen import ConversationAgent
from sessions_app.loops.inputs import titles
from sessions_app.loops.manager import get_manager

SERVICE_ID = "ask_agent"
# What accompanies a question: the newest messages, and of these no more than this text.
MESSAGES_MAX = 50

_SAID = EventFilter(
    exclude_hidden=True,
    any_of=frozenset(
        EventMatch(dialect=dialect, kinds=frozenset({Kind.MESSAGE}), sources=frozenset({"user", "agent"}))
        for dialect in Dialect
    ),
)


async def answer_to(conversation: ConversationRef, question: str) -> str:
    """Return the agent's answer to a question about the conversation."""
    said = await astore.call(_said, conversation)
    return await _asked(conversation, [*said, {"role": "user", "content": question}])


async def title_of(conversation: ConversationRef, *, max_characters: int) -> str | None:
    """Return a title with at most this many characters; None before the user's first message."""
    message = await astore.call(titles.first_message, conversation)
    if not message:
        return None
    return await titles.made_of(message, partial(_asked, conversation), max_characters)


async def _asked(conversation: ConversationRef, messages: Sequence[Mapping[str, str]]) -> str:
    """Ask the loop's agent, or a new instance."""
    try:
        return await get_manager().request_llm_completion(conversation.public_id, SERVICE_ID, None, messages)
    except LoopUnavailable:  # a question starts no loop
        return await ConversationAgent(conversation).complete(messages)


def _said(conversation: ConversationRef) -> list[dict[str, str]]:
    """Return the newest messages, oldest first."""
    page = reads.search_events(conversation, _SAID, newest_first=True, limit=MESSAGES_MAX)
    told: list[dict[str, str]] = []
    told_max_characters = 100_000
    room = told_max_characters
    for event in page.events:
        # A message that does not fit ends it: an older one without it would mislead the agent.
        room -= len(event["text"])
        if room < 0:
            break
        role = "user" if event["source"] == "user" else "assistant"
        told.append({"role": role, "content": event["text"]})
    return told[::-1]
