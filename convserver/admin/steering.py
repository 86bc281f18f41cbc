"""The acts of staff on conversations, one or many, each with its own outcome."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from conversations.engines import failures
from conversations.exceptions import ConversationError
from conversations.models import Conversation, ConversationRef
from conversations.store import deletion
from convserver.admin import cells
from convserver.admin.base import record_act
from convserver.batches import actions
from convserver.event_loop import in_loop
from sessions_app.identity import conversation_keys
from sessions_app.identity.authentication import is_keyed, lets_everybody_in
from sessions_app.loops.manager import get_manager

logger = logging.getLogger(__name__)


class SteeringAction(StrEnum):
    """What staff can do with a conversation."""

    START = "start"
    STOP = "stop"
    HIDE = "hide"
    RESTORE = "restore"
    RESET_KEY = "reset_key"

    @property
    def done(self) -> str:
        return DONE[self]


DONE = {
    SteeringAction.START: "Started the agent",
    SteeringAction.STOP: "Stopped the agent",
    SteeringAction.HIDE: "Deleted",
    SteeringAction.RESTORE: "Restored",
    SteeringAction.RESET_KEY: "Reset the access key",
}


class SteeringOutcome(NamedTuple):
    """The outcome for one conversation."""

    conversation: Conversation
    problem: str | None  # the reason why it failed; None for success


def steer(action: SteeringAction, conversations: Sequence[Conversation]) -> list[SteeringOutcome]:
    """Do this with each of the conversations, also after it failed for another one."""
    objections = {each.pk: _objection(action, each) for each in conversations}
    # Only what the state allows is tried: an act on a deleted conversation would fail less clearly.
    possible = [each.ref for each in conversations if objections[each.pk] is None]
    for conversation, problem in zip(possible, _do(action, possible), strict=True):
        objections[conversation.pk] = None if problem is None else _told(problem, conversation)
    return [SteeringOutcome(each, objections[each.pk]) for each in conversations]


def selected(request: HttpRequest, queryset: QuerySet[Conversation]) -> list[Conversation]:
    """Return the rows that were selected in a list; none, with a message, if they are too many."""
    rows = list(queryset[: cells.SELECTED_MAX + 1])
    if len(rows) > cells.SELECTED_MAX:
        messages.error(request, f"Nothing was done. Select {cells.SELECTED_MAX} conversations at most.")
        return []
    return rows


def steer_and_tell(
    request: HttpRequest, action: SteeringAction, conversations: Sequence[Conversation]
) -> None:
    """Do this with each, record what was done, and show the visitor every outcome."""
    outcomes = steer(action, conversations)
    done = [outcome.conversation for outcome in outcomes if outcome.problem is None]
    record_act(request, done, action.done)
    if done:
        messages.success(request, f"{action.done}: {_names(done)}.")
    for outcome in [each for each in outcomes if each.problem][: cells.NAMED_MAX]:
        messages.error(request, f"{_name(outcome.conversation)}: {outcome.problem}")
    if (more := len(outcomes) - len(done) - cells.NAMED_MAX) > 0:
        messages.error(request, f"{more} more failed.")


def steering_action(description: str, action: SteeringAction) -> Any:
    """Return an action of the list of conversations that does this with the selected ones."""

    @admin.action(description=description, permissions=["steer"])
    def act(_admin: object, request: HttpRequest, queryset: QuerySet[Conversation]) -> None:
        steer_and_tell(request, action, selected(request, queryset))

    return act


def _names(conversations: Sequence[Conversation]) -> str:
    if len(conversations) == 1:
        return _name(conversations[0])
    return f"{len(conversations)} conversations"


def _name(conversation: Conversation) -> str:
    return f"{cells.title_of(conversation)[:60]} ({conversation.public_id})"


def _objection(action: SteeringAction, conversation: Conversation) -> str | None:
    """Return the reason why the conversation's state does not allow this, if any."""
    is_deleted = conversation.deleted_at is not None
    if conversation.purged_at is not None:
        return "It was purged."
    match action:
        case SteeringAction.START | SteeringAction.RESET_KEY if is_deleted:
            return "It is deleted. Restore it first."
        case SteeringAction.HIDE if is_deleted:
            return "It is already deleted."
        case SteeringAction.RESTORE if not is_deleted:
            return "It is not deleted."
        case SteeringAction.RESET_KEY if lets_everybody_in():
            return "It has no access key. This server asks for no credentials."
        case SteeringAction.RESET_KEY if not is_keyed(conversation.version):
            return "It has no access key. Only V1 conversations have one."
    return None


def _do(action: SteeringAction, conversations: Sequence[ConversationRef]) -> list[BaseException | None]:
    """Return for each the error, None for success."""
    match action:
        case SteeringAction.START:
            return in_loop(actions.tried, lambda each: get_manager().run(each), conversations)
        case SteeringAction.STOP:
            return in_loop(
                actions.tried, lambda each: get_manager().close_session(each.public_id), conversations
            )
        case SteeringAction.HIDE:
            return actions.delete_all(conversations)
        case SteeringAction.RESTORE:
            return [actions.problem_of(deletion.restore, each) for each in conversations]
        case SteeringAction.RESET_KEY:
            return [actions.problem_of(conversation_keys.rotate, each) for each in conversations]
    assert_never(action)


def _told(error: BaseException, conversation: ConversationRef) -> str:
    """Return what a visitor reads of a failure; a failure of the server itself goes to the log."""
    if isinstance(error, ConversationError):
        return str(error)
    if isinstance(error, failures.FAILURES):  # without a traceback: it is the database, not this code
        logger.error("Admin: the database failed on conversation %s: %s", conversation.public_id, error)
        return failures.sentence(error)
    logger.error("Admin: steering conversation %s failed", conversation.public_id, exc_info=error)
    return "The server failed. See its log."
