"""Titles that nobody gave: made once from the first message, never in the place of one that somebody gave."""

from __future__ import annotations

import logging

from conversations.events import EventFilter
from conversations.models import Conversation, ConversationRef
from conversations.store import store
from sessions_app import astore
from sessions_app.agents.base import Agent

logger = logging.getLogger(__name__)

TITLE_MAX_CHARACTERS = 50
SHOWN_MAX_CHARACTERS = 1000
FALLBACK_CHARACTERS = 30
LOOKED_AT = 10
"""So many messages are looked at for one that is not blank."""
TRIED = "title_was_made"
"""The creation parameter that remembers that a title was made, whatever became of it."""

_MESSAGES = EventFilter(types=frozenset({"message", "MessageEvent"}), source="user")
_REQUEST = (
    "Give the conversation that begins with the user's message below a title: at most "
    f"{TITLE_MAX_CHARACTERS} characters, in the language of the message, without quotes. Answer with the "
    "title alone."
)


async def entitle(conversation: ConversationRef, agent: Agent) -> None:
    """Make a title if the conversation has none and none was ever made (spec V0 §4.5).

    Whatever goes wrong with the agent, the beginning of the message serves.
    """
    message = await astore.call(_first_message_without_title, conversation)
    if message is not None:
        title = await _asked(conversation, agent, message)
        await astore.call(_give, conversation, title)


def _first_message_without_title(conversation: ConversationRef) -> str | None:
    if Conversation.objects.filter(pk=conversation.pk, title__isnull=False).exists():
        return None
    first = store().search_events(conversation, _MESSAGES, limit=LOOKED_AT).events
    message = next((text for each in first if (text := each["text"].strip())), "")
    if not message or not store().set_parameter_once(conversation, TRIED, True):
        return None
    return message


async def _asked(conversation: ConversationRef, agent: Agent, message: str) -> str:
    is_long = len(message) > SHOWN_MAX_CHARACTERS
    shown = message[:SHOWN_MAX_CHARACTERS] + ("...(truncated)" if is_long else "")
    try:
        answer = await agent.complete(
            [{"role": "system", "content": _REQUEST}, {"role": "user", "content": shown}]
        )
    except Exception as error:
        logger.warning("Conversation %s gets a title without its agent: %s", conversation.public_id, error)
        answer = ""
    return _cut(" ".join(answer.split()), TITLE_MAX_CHARACTERS) or _beginning(message)


def _cut(title: str, most: int) -> str:
    return title if len(title) <= most else f"{title[: most - 3]}..."


def _beginning(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= FALLBACK_CHARACTERS else f"{line[:FALLBACK_CHARACTERS]}..."


def _give(conversation: ConversationRef, title: str) -> None:
    store().retitle(conversation, title, title_is=None)
