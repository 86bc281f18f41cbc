"""One action on at most BATCH_MAX conversations of a user, and its undo."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from django.db import transaction

from conversations import access
from conversations.access import Visitor
from conversations.engines import failures
from conversations.exceptions import ConversationError, InvalidConversationId
from conversations.log.locks import lock_all
from conversations.models import Conversation, ConversationQuerySet, ConversationRef, normal_id
from conversations.store import delete as delete_from_store
from conversations.store import deletion, labels
from convserver.batches import undo
from convserver.batches.undo import UndoableChange
from convserver.event_loop import in_loop
from sessions_app.live import marks
from sessions_app.models import Mark
from sessions_app.openhands_v1 import steering

logger = logging.getLogger(__name__)

BATCH_MAX = 200  # the most conversations of one action
# The agents that are stopped or started at the same time.
STOPS_AT_ONCE = 20


class BatchAction(StrEnum):
    ARCHIVE = "archive"
    UNARCHIVE = "unarchive"
    DELETE = "delete"
    RESTORE = "restore"
    LABEL = "label"
    UNLABEL = "unlabel"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchOrder:
    """An action, with the tag that it sets or removes."""

    action: BatchAction
    name: str = ""
    value: str = ""


@dataclass(kw_only=True, slots=True)
class BatchResult:
    """The result of an action."""

    changed: list[str] = field(default_factory=list)  # the ids of the changed conversations
    unchanged: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    """By id: the reason why the conversation was not changed."""
    undo: str | None = None  # the text for `undo.read`; None if nothing changed


def reachable(user: Visitor, action: BatchAction) -> ConversationQuerySet:
    """Return the conversations that an action may change: for `restore`, the deleted ones, too."""
    if action is not BatchAction.RESTORE:
        return Conversation.objects.visible_to(user)
    return Conversation.objects.reachable_by(user)


def carry_out(user: Visitor, order: BatchOrder, conversations: Sequence[ConversationRef]) -> BatchResult:
    """Carry out an action on at most BATCH_MAX conversations that the user may change."""
    # Archives and labels are one transaction; each deletion is its own, since agents are stopped before it.
    done = BatchResult()
    before = _ACTS[order.action](user, order, conversations, done)
    done.changed = list(before)
    done.unchanged = len(conversations) - len(before) - len(done.refused)
    if before:
        value = order.value if order.action is BatchAction.LABEL else None
        done.undo = undo.written(access.pk_of(user), UndoableChange(order.action, order.name, value, before))
    return done


def take_back(user: Visitor, change: UndoableChange) -> BatchResult:
    """Undo a change where it still holds: a conversation that was changed again stays as it is."""
    done = BatchResult()
    inverse = _INVERSE.get(BatchAction(change.action))
    if inverse is None:
        rows = Conversation.objects.visible_to(user).with_public_ids(change.before)
        values = {each: change.before[each.public_id] for each in refs_of(rows)}
        # Only where the tag still has the batch's value: a later change by hand is not undone.
        retagged = labels.set_tag(change.name, values, where_it_is=(change.value,))
        done.changed, done.refused = list(retagged.before), retagged.refused
    else:
        rows = reachable(user, inverse).with_public_ids(change.before)
        done.changed = list(_ACTS[inverse](user, BatchOrder(action=inverse), refs_of(rows), done))
    done.unchanged = len(change.before) - len(done.changed) - len(done.refused)
    return done


def stored_id(text: str) -> str | None:
    """Return an id in its stored form; None for a text that names nothing."""
    try:
        return normal_id(text)
    except InvalidConversationId:
        return None


def refs_of(rows: ConversationQuerySet) -> list[ConversationRef]:
    """Return these rows in the form that actions take."""
    return [row.ref for row in rows.only("pk", "public_id", "owner_id", "version")]


Before = dict[str, str | None]
"""By id of each changed conversation: the earlier value of its tag; None for none, or for other actions."""
Act = Callable[[Visitor, BatchOrder, Sequence[ConversationRef], BatchResult], Before]


def _archive(
    user: Visitor, order: BatchOrder, conversations: Sequence[ConversationRef], done: BatchResult
) -> Before:
    wanted = order.action is BatchAction.ARCHIVE
    user_pk = access.pk_of(user)
    pks = [each.pk for each in conversations]
    with transaction.atomic():
        # In one order, so that two batches never wait for each other; then what is read here still holds.
        lock_all(conversations)
        marked = Mark.objects.of_user(user_pk).archived().filter(conversation__in=pks)
        archived = set(marked.values_list("conversation_id", flat=True))
        changed = [each for each in conversations if (each.pk in archived) != wanted]
        for each in changed:
            marks.mark(user_pk, each, archived=wanted)
    return _ids(changed)


def _delete(
    user: Visitor, order: BatchOrder, conversations: Sequence[ConversationRef], done: BatchResult
) -> Before:
    deleted = []
    for each, problem in zip(conversations, delete_all(conversations), strict=True):
        if problem:
            done.refused[each.public_id] = _told(problem, each)
        else:
            deleted.append(each)
    return _ids(deleted)


def delete_all(conversations: Sequence[ConversationRef]) -> list[BaseException | None]:
    """Stop the agents and delete the conversations; return the error of each that was not deleted, else None.

    An agent that does not stop within 8 s cannot write any more, and counts as stopped.
    """
    # All are stopped before the first is deleted: agents end side by side, deletions one after the other.
    stopped = in_loop(tried, steering.stop_to_delete, conversations)
    return [
        problem or problem_of(delete_from_store, each)
        for each, problem in zip(conversations, stopped, strict=True)
    ]


async def tried(
    act: Callable[[ConversationRef], Awaitable[object]], conversations: Sequence[ConversationRef]
) -> list[BaseException | None]:
    """Do this with each, a few at a time; return the error of each that failed, else None."""
    results: list[object] = []
    for at in range(0, len(conversations), STOPS_AT_ONCE):
        some = conversations[at : at + STOPS_AT_ONCE]
        results += await asyncio.gather(*map(act, some), return_exceptions=True)
    return [each if isinstance(each, BaseException) else None for each in results]


def problem_of(
    act: Callable[[ConversationRef], object], conversation: ConversationRef
) -> BaseException | None:
    """Do this with a conversation; return the error, None for success, so that others are done anyway."""
    try:
        act(conversation)
    except Exception as error:
        return error
    return None


def _told(problem: BaseException, conversation: ConversationRef) -> str:
    """Return the sentence about a failure for the user; a failure of the server goes to the log."""
    if isinstance(problem, ConversationError):
        return str(problem)
    logger.error("Deleting conversation %s failed", conversation.public_id, exc_info=problem)
    if isinstance(problem, failures.FAILURES):
        return failures.sentence(problem)
    return "The server could not delete it. Try again."


def _restore(
    user: Visitor, order: BatchOrder, conversations: Sequence[ConversationRef], done: BatchResult
) -> Before:
    with transaction.atomic():
        lock_all(conversations)
        rows = Conversation.objects.deleted().with_pks(each.pk for each in conversations)
        deleted = set(rows.values_list("pk", flat=True))
        changed = [each for each in conversations if each.pk in deleted]
        for each in changed:
            deletion.restore(each)
    return _ids(changed)


def _label(
    user: Visitor, order: BatchOrder, conversations: Sequence[ConversationRef], done: BatchResult
) -> Before:
    value = order.value if order.action is BatchAction.LABEL else None
    retagged = labels.set_tag(order.name, dict.fromkeys(conversations, value))
    done.refused = retagged.refused
    return retagged.before


def _ids(conversations: Iterable[ConversationRef]) -> Before:
    return dict.fromkeys(each.public_id for each in conversations)


_ACTS: dict[BatchAction, Act] = {
    BatchAction.ARCHIVE: _archive,
    BatchAction.UNARCHIVE: _archive,
    BatchAction.DELETE: _delete,
    BatchAction.RESTORE: _restore,
    BatchAction.LABEL: _label,
    BatchAction.UNLABEL: _label,
}
_INVERSE = {
    BatchAction.ARCHIVE: BatchAction.UNARCHIVE,
    BatchAction.UNARCHIVE: BatchAction.ARCHIVE,
    BatchAction.DELETE: BatchAction.RESTORE,
    BatchAction.RESTORE: BatchAction.DELETE,
}
