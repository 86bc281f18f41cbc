"""Generated titles: made once from the first message; they never replace a title that a person gave.

The beginning of the message is the title until the agent has made a better one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from django.db import transaction

from conversations import provisional_titles
from conversations.dialects import columns
from conversations.events import EventFilter
from conversations.log import reads
from conversations.models import Conversation, ConversationRef, shown_title
from conversations.payloads import halves
from conversations.provisional_titles import PARAMETER, PROVISIONAL
from conversations.store import changes
from conversations.transcripts.plain import words
from sessions_app import astore
from sessions_app.agents.base import Agent
from sessions_app.agents.chosen import cues_in

logger = logging.getLogger(__name__)

Ask = Callable[[Sequence[Mapping[str, str]]], Awaitable[str]]
"""Answers messages of a role and a content, oldest first."""

SHOWN_MAX_CHARACTERS = 1000
FALLBACK_CHARACTERS = 30
# Messages of images alone are blank.
LOOKED_AT = 10

_MESSAGES = EventFilter(types=frozenset({"message", "MessageEvent"}), source="user")
_REQUEST = (
    "Give the conversation that begins with the user's message below a title: at most "
    "{most} characters, in the language of the message, without quotes. Answer with the "
    "title alone."
)
_MARKS = ("**", "__", "`")
_QUOTES = "\"'“”„«»"


def set_provisional_title(conversation: ConversationRef) -> None:
    """Set the beginning of the first message as the title, if there is none and none was ever made."""
    message = _first_message_without_title(conversation)
    if message is None:
        return
    with transaction.atomic():
        if not changes.set_parameter_once(conversation, PARAMETER, PROVISIONAL):
            return
        title = _of_cue(message, conversation) or _beginning(message)
        if not changes.retitle(conversation, title, title_is=None):
            provisional_titles.note_chosen(conversation.pk)  # a person has just given one


async def set_generated_title(conversation: ConversationRef, agent: Agent) -> None:
    """Generate the title by the agent if no person gave one and none was ever made (spec V0 §4.5).

    Until then, and after a failure, the beginning of the message is the title.
    """
    await astore.change(set_provisional_title, conversation)
    message = await astore.call(_message_of_provisional_title, conversation)
    if message is not None:
        title = await astore.call(_of_cue, message, conversation)
        title = title or await made_of(message, agent.complete, max_characters=50)
        await astore.change(_replace_provisional_title, conversation, title)


def keep_provisional_title(conversation: ConversationRef) -> None:
    """Keep the beginning of the first message as the title, unless there is another; for a turn's end."""
    # No model is asked: a user who stops an agent does not want further calls.
    set_provisional_title(conversation)
    with transaction.atomic():
        Conversation.objects.locked().get(pk=conversation.pk)
        provisional_titles.settle(conversation.pk)


async def made_of(message: str, ask: Ask, max_characters: int) -> str:
    """Return a title for a conversation that begins with this message; after a failure, its beginning."""
    is_long = len(message) > SHOWN_MAX_CHARACTERS
    shown = message[:SHOWN_MAX_CHARACTERS] + ("...(truncated)" if is_long else "")
    request = _REQUEST.format(most=max_characters)
    try:
        answer = await ask([{"role": "system", "content": request}, {"role": "user", "content": shown}])
    except Exception as error:
        logger.warning("A conversation gets a title without its agent: %s", error)
        answer = ""
    # A model may write half a character, or one that a column cannot hold.
    return _cut(_plain(columns.clean(halves.whole(answer))) or _beginning(message), max_characters)


def _plain(answer: str) -> str:
    """Return an answer as one line, without the marks that models put around a title."""
    for mark in _MARKS:
        answer = answer.replace(mark, "")
    line = words(answer).lstrip("# ")
    is_quoted = line[:1] in _QUOTES and line[-1:] in _QUOTES
    return line.strip(_QUOTES) if is_quoted else line


def first_message(conversation: ConversationRef) -> str:
    """Return the first message of the user that is not blank, if there is one."""
    first = reads.search_events(conversation, _MESSAGES, limit=LOOKED_AT).events
    return next((text for each in first if (text := each["text"].strip())), "")


def _first_message_without_title(conversation: ConversationRef) -> str | None:
    rows = Conversation.objects.filter(pk=conversation.pk, title__isnull=True)
    if not rows.exclude(creation_parameters__parameters__has_key=PARAMETER).exists():
        return None
    return first_message(conversation) or None


def _message_of_provisional_title(conversation: ConversationRef) -> str | None:
    return first_message(conversation) if provisional_titles.is_provisional(conversation.pk) else None


def _of_cue(message: str, conversation: ConversationRef) -> str | None:
    """Return the title of a conversation that begins with a command of the agent; None for other messages."""
    said = message.strip().lower()
    # The same command begins many conversations: a part of the id distinguishes them.
    told_apart = shown_title(None, conversation.public_id).removeprefix("Conversation ")
    return f"{said} · {told_apart}" if said in cues_in(conversation) else None


def _cut(title: str, most: int) -> str:
    return title if len(title) <= most else f"{title[: max(most - 3, 0)]}..."[:most]


def _beginning(message: str) -> str:
    # Titles are plain text wherever they are shown; of a message without words, its signs are the title.
    line = words(message) or " ".join(message.split())
    return line if len(line) <= FALLBACK_CHARACTERS else f"{line[:FALLBACK_CHARACTERS]}..."


@transaction.atomic
def _replace_provisional_title(conversation: ConversationRef, title: str) -> None:
    row = Conversation.objects.locked().get(pk=conversation.pk)
    # Settled with the title, not before: its maker may be ended while the agent thinks.
    if provisional_titles.settle(row.pk) and row.title != title:
        changes.retitle(conversation, title, title_is=row.title)
