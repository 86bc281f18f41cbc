"""One action on up to BATCH_MAX conversations of a user, and what it needs to be taken back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from django.db import transaction

from conversations import access
from conversations.access import Visitor
from conversations.engines import failures
from conversations.exceptions import ConversationError
from conversations.log.locks import lock_all
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from conversations.store import delete as delete_from_store
from conversations.store import deletion, labels
from convserver.batches import undo
from convserver.batches.undo import UndoableChange
from convserver.event_loop import in_loop
from sessions_app.live import marks
from sessions_app.models import Mark
from sessions_app.openhands_v1 import steering

logger = logging.getLogger(__name__)

BATCH_MAX = 200
"""So many conversations take part in one action."""
STOPS_AT_ONCE = 20
"""So many agents are stopped at the same time before their conversations are deleted."""


class BatchAction(StrEnum):
    """What can be done to many conversations."""

    ARCHIVE = "archive"
    UNARCHIVE = "unarchive"
    DELETE = "delete"
    RESTORE = "restore"
    LABEL = "label"
    UNLABEL = "unlabel"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchOrder:
    """An action with what it says: the tag that it sets or takes away."""

    action: BatchAction
    name: str = ""
    value: str = ""


@dataclass(kw_only=True, slots=True)
class BatchResult:
    """What an action has done."""

    changed: list[str] = field(default_factory=list)
    """The ids of those that are different now."""
    unchanged: int = 0
    """How many were so before."""
    refused: dict[str, str] = field(default_factory=dict)
    """By id: why one was not changed."""
    undo: str | None = None
    """What `undo.read` takes; None if nothing changed."""


def reachable(user: Visitor, action: BatchAction) -> ConversationQuerySet:
    """Return the conversations of a user that an action may be about: for `restore`, the deleted ones too."""
    if action is not BatchAction.RESTORE:
        return Conversation.objects.visible_to(user)
    return Conversation.objects.reachable_by(user)


def carry_out(user: Visitor, order: BatchOrder, conversations: Sequence[ConversationRef]) -> BatchResult:
    """Do it to at most BATCH_MAX conversations that the user may change.

    Archives and labels are one transaction; deletions are one each, since agents are stopped before.
    """
    done = BatchResult()
    before = _ACTS[order.action](user, order, conversations, done)
    done.changed = list(before)
    done.unchanged = len(conversations) - len(before) - len(done.refused)
    if before:
        value = order.value if order.action is BatchAction.LABEL else None
        done.undo = undo.written(user, UndoableChange(order.action, order.name, value, before))
    return done


def take_back(user: Visitor, change: UndoableChange) -> BatchResult:
    """Undo a change where it still stands: what was changed again since stays."""
    done = BatchResult()
    inverse = _INVERSE.get(BatchAction(change.action))
    if inverse is None:
        rows = Conversation.objects.visible_to(user).with_public_ids(change.before)
        values = {each: change.before[each.public_id] for each in refs_of(rows)}
        retagged = labels.set_tag(change.name, values, where_it_is=(change.value,))
        done.changed, done.refused = list(retagged.before), retagged.refused
    else:
        rows = reachable(user, inverse).with_public_ids(change.before)
        done.changed = list(_ACTS[inverse](user, BatchOrder(action=inverse), refs_of(rows), done))
    done.unchanged = len(change.before) - len(done.changed) - len(done.refused)
    return done


def refs_of(rows: ConversationQuerySet) -> list[ConversationRef]:
    """Return what actions take of these rows."""
    return [row.ref for row in rows.only("pk", "public_id", "owner_id", "version")]


Before = dict[str, str | None]
"""By id of what changed: the value that its tag had; None for none, and for what is no tag."""
Act = Callable[[Visitor, BatchOrder, Sequence[ConversationRef], BatchResult], Before]


def _archive(
    user: Visitor, order: BatchOrder, conversations: Sequence[ConversationRef], done: BatchResult
) -> Before:
    wanted = order.action is BatchAction.ARCHIVE
    user_pk = access.pk_of(user)
    pks = [each.pk for each in conversations]
    with transaction.atomic():
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
    for each, problem in zip(conversations, in_loop(_stop, conversations), strict=True):
        if problem := problem or _problem_of_deleting(each):
            done.refused[each.public_id] = _told(problem, each)
        else:
            deleted.append(each)
    return _ids(deleted)


async def _stop(conversations: Sequence[ConversationRef]) -> list[BaseException | None]:
    """Stop their agents, a few at a time; return why each could not be stopped, None for those that were.

    One that does not let go within 8 s can write nothing more, and counts as stopped.
    """
    problems: list[BaseException | None] = []
    for at in range(0, len(conversations), STOPS_AT_ONCE):
        some = conversations[at : at + STOPS_AT_ONCE]
        problems += await asyncio.gather(*map(steering.stop_to_delete, some), return_exceptions=True)
    return problems


def _problem_of_deleting(conversation: ConversationRef) -> Exception | None:
    try:
        delete_from_store(conversation)
    except Exception as error:  # the others are to be deleted all the same
        return error
    return None


def _told(problem: BaseException, conversation: ConversationRef) -> str:
    """Return what the user is told of a failure; one of the server itself is for the log."""
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
