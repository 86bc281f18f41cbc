"""Counting what calls of models use: for the conversation, and by its owner, model and day."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby

from django.db import Error as DatabaseProblem
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from conversations.exceptions import ConversationError
from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.agents.base import Usage
from sessions_app.models import MODEL_NAME_MAX_LENGTH, ModelUse, Used
from sessions_app.models.model_use import NANOS

logger = logging.getLogger(__name__)

UNNAMED = "unknown"


def record(conversation: ConversationRef, usages: Sequence[Usage]) -> None:
    """Count calls that have just ended, in the running transaction, which holds the conversation's lock."""
    _add_to_totals(conversation, _sum(usages))
    day = timezone.now().date()
    for model, group in groupby(sorted(usages, key=_model_of), key=_model_of):
        used = _sum(list(group))
        place = {
            "conversation_id": conversation.pk,
            "user_id": conversation.owner_id,
            "model": model,
            "day": day,
        }
        added = {name: F(name) + count for name, count in used._asdict().items()}
        if not ModelUse.objects.filter(**place).update(**added):  # under the lock nobody else adds it
            ModelUse.objects.create(**place, **used._asdict())


async def record_beside(conversation: ConversationRef, usages: Sequence[Usage]) -> None:
    """Count calls that add no event, in a transaction of their own; a failure is logged and not raised."""
    if not usages:
        return
    try:
        await astore.change(_record_locked, conversation, usages)
    except (DatabaseProblem, ConversationError) as error:
        logger.warning("What calls of a model used was not counted: %s", error)


@transaction.atomic
def _record_locked(conversation: ConversationRef, usages: Sequence[Usage]) -> None:
    if Conversation.objects.locked().filter(pk=conversation.pk).exists():
        record(conversation, usages)


def _add_to_totals(conversation: ConversationRef, used: Used) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(
        accumulated_cost=F("accumulated_cost") + used.dollars,
        prompt_tokens=F("prompt_tokens") + used.prompt_tokens,
        completion_tokens=F("completion_tokens") + used.completion_tokens,
        total_tokens=F("total_tokens") + used.prompt_tokens + used.completion_tokens,
    )


def _sum(usages: Sequence[Usage]) -> Used:
    return Used(
        calls=len(usages),
        unpriced_calls=sum(usage.cost is None for usage in usages),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cost_nanos=sum(round((usage.cost or 0.0) * NANOS) for usage in usages),
    )


def _model_of(usage: Usage) -> str:
    return (usage.model or UNNAMED)[:MODEL_NAME_MAX_LENGTH]
