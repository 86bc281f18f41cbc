"""What staff may do with conversations, one or many: each stands for itself, and each is told how it went."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, assert_never

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest

from conversations.engines import failures
from conversations.exceptions import ConversationError
from conversations.models import Conversation, ConversationRef
from conversations.store import delete, deletion
from convserver.admin import cells
from convserver.admin.resources import audit
from convserver.event_loop import in_loop
from sessions_app.identity import conversation_keys
from sessions_app.identity.authentication import is_keyed, lets_everybody_in
from sessions_app.loops.manager import get_manager
from sessions_app.openhands_v1 import steering

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""So many agents are started or stopped at the same time: an agent may take its time to let go."""
SELECTED_MAX = 100
PROBLEMS_SHOWN = 5


class Action(StrEnum):
    """What can be done with a conversation."""

    START = "start"
    STOP = "stop"
    HIDE = "hide"
    RESTORE = "restore"
    RESET_KEY = "reset_key"

    @property
    def done(self) -> str:
        """What a log and a message say of it."""
        match self:
            case Action.START:
                return "Started the agent"
            case Action.STOP:
                return "Stopped the agent"
            case Action.HIDE:
                return "Deleted"
            case Action.RESTORE:
                return "Restored"
            case Action.RESET_KEY:
                return "Reset the access key"
        assert_never(self)


class Outcome(NamedTuple):
    """How it went with one conversation."""

    conversation: Conversation
    problem: str | None
    """Why it was not done; None when it was."""


def steer(action: Action, conversations: Sequence[Conversation]) -> list[Outcome]:
    """Do this with each of the conversations; what fails for one is done for the others all the same."""
    possible = [each for each in conversations if _objection(action, each) is None]
    problems = dict(
        zip((each.pk for each in possible), _do(action, [each.ref for each in possible]), strict=True)
    )
    return [Outcome(each, problems.get(each.pk, _objection(action, each))) for each in conversations]


def selected(request: HttpRequest, queryset: QuerySet[Conversation]) -> list[Conversation]:
    """Return the rows that an action of a list was asked for; none, and a message, if they are too many."""
    rows = list(queryset[: SELECTED_MAX + 1])
    if len(rows) > SELECTED_MAX:
        messages.error(request, f"Nothing was done. Select {SELECTED_MAX} conversations at most.")
        return []
    return rows


def steer_and_tell(request: HttpRequest, action: Action, conversations: Sequence[Conversation]) -> None:
    """Do this with each, enter in the log what was done, and tell the visitor about every outcome."""
    outcomes = steer(action, conversations)
    done = [outcome.conversation for outcome in outcomes if outcome.problem is None]
    audit.record(request, done, action.done)
    if done:
        messages.success(request, f"{action.done}: {_names(done)}.")
    for outcome in [each for each in outcomes if each.problem][:PROBLEMS_SHOWN]:
        messages.error(request, f"{_name(outcome.conversation)}: {outcome.problem}")
    if (more := len(outcomes) - len(done) - PROBLEMS_SHOWN) > 0:
        messages.error(request, f"{more} more failed.")


def _names(conversations: Sequence[Conversation]) -> str:
    if len(conversations) == 1:
        return _name(conversations[0])
    return f"{len(conversations)} conversations"


def _name(conversation: Conversation) -> str:
    return f"{cells.title_of(conversation)[:60]} ({conversation.public_id})"


def _objection(action: Action, conversation: Conversation) -> str | None:
    """Return why this cannot be done with the conversation as it is."""
    is_deleted = conversation.deleted_at is not None
    if conversation.purged_at is not None:
        return "It was purged."
    match action:
        case Action.START | Action.RESET_KEY if is_deleted:
            return "It is deleted. Restore it first."
        case Action.HIDE if is_deleted:
            return "It is already deleted."
        case Action.RESTORE if not is_deleted:
            return "It is not deleted."
        case Action.RESET_KEY if lets_everybody_in():
            return "It has no access key. This server asks for no credentials."
        case Action.RESET_KEY if not is_keyed(conversation.version):
            return "It has no access key. Only V1 conversations have one."
    return None


def _do(action: Action, conversations: Sequence[ConversationRef]) -> list[str | None]:
    """Return for each why it failed, None where it did not."""
    match action:
        case Action.START:
            return in_loop(_each, _start, conversations)
        case Action.STOP:
            return in_loop(_each, _stop, conversations)
        case Action.HIDE:
            stopped = in_loop(_each, steering.stop_to_delete, conversations)
            return [
                problem or _problem_of(delete, conversation)
                for conversation, problem in zip(conversations, stopped, strict=True)
            ]
        case Action.RESTORE:
            return [_problem_of(deletion.restore, conversation) for conversation in conversations]
        case Action.RESET_KEY:
            return [_problem_of(conversation_keys.rotate, conversation) for conversation in conversations]
    assert_never(action)


async def _each(
    act: Callable[[ConversationRef], Awaitable[None]], conversations: Sequence[ConversationRef]
) -> list[str | None]:
    room = asyncio.Semaphore(AT_ONCE)

    async def outcome(conversation: ConversationRef) -> str | None:
        async with room:
            try:
                await act(conversation)
            except Exception as error:  # the others are to be done all the same
                return _told(error, conversation)
        return None

    return await asyncio.gather(*map(outcome, conversations))


def _problem_of(act: Callable[[ConversationRef], object], conversation: ConversationRef) -> str | None:
    try:
        act(conversation)
    except Exception as error:  # the others are to be done all the same
        return _told(error, conversation)
    return None


def _told(error: Exception, conversation: ConversationRef) -> str:
    """Return what a visitor is told of a failure; one of the server itself is for the log."""
    if isinstance(error, ConversationError):
        return str(error)
    if isinstance(error, failures.FAILURES):
        logger.error("Admin: the database failed on conversation %s: %s", conversation.public_id, error)
        return failures.sentence(error)
    logger.error("Admin: steering conversation %s failed", conversation.public_id, exc_info=error)
    return "The server failed. See its log."


async def _start(conversation: ConversationRef) -> None:
    await get_manager().run(conversation)


async def _stop(conversation: ConversationRef) -> None:
    await get_manager().close_session(conversation.public_id)
