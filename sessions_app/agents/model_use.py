"""The usage of models: counted for each conversation, and by owner, model and day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby
from uuid import uuid4

from django.db import Error as DatabaseProblem
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from conversations import counts
from conversations.counts import Counted
from conversations.exceptions import ConversationError
from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.agents import limit_notices, metering
from sessions_app.agents.base import AgentFailure, CallUsage
from sessions_app.models import MODEL_NAME_MAX_LENGTH, NANOS, Amounts, ModelUse, Used
from sessions_app.settings import run_limits
from sessions_app.settings.run_limits import RunLimits

logger = logging.getLogger(__name__)

UNNAMED = "unknown"


def record(conversation: ConversationRef, usages: Sequence[CallUsage]) -> None:
    """Count ended calls in the running transaction, which holds the conversation's lock."""
    used = _sum(usages)
    Conversation.objects.filter(pk=conversation.pk).update(
        accumulated_cost=F("accumulated_cost") + used.dollars,
        prompt_tokens=F("prompt_tokens") + used.prompt_tokens,
        completion_tokens=F("completion_tokens") + used.completion_tokens,
        total_tokens=F("total_tokens") + used.prompt_tokens + used.completion_tokens,
    )
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
        if not ModelUse.objects.filter(**place).update(**added):  # under the lock no other process adds it
            ModelUse.objects.create(**place, **used._asdict())
        transaction.on_commit(partial(_count, model, used))  # a repeated transaction counts once


def _count(model: str, used: Used) -> None:
    counts.add(Counted.MODEL_CALLS, model, number=used.calls)
    counts.add(Counted.MODEL_TOKENS, model, "prompt", number=used.prompt_tokens)
    counts.add(Counted.MODEL_TOKENS, model, "completion", number=used.completion_tokens)
    counts.add(Counted.MODEL_NANODOLLARS, model, number=used.cost_nanos)


async def record_beside(conversation: ConversationRef, usages: Sequence[CallUsage]) -> None:
    """Count calls without an event, in a transaction of their own; log a failure, and do not raise it."""
    if not usages:
        return
    try:
        await astore.change(_record_locked, conversation, usages)
    except (DatabaseProblem, ConversationError) as error:
        logger.warning("The usage of calls of a model was not counted: %s", error)


@asynccontextmanager
async def reserved_beside(
    conversation: ConversationRef, expected: CallUsage
) -> AsyncIterator[list[CallUsage]]:
    """Reserve a call outside turns; the block appends its usage to the list.

    Raise AgentFailure if a limit of the conversation is reached.
    """
    family = await astore.call(run_limits.family_limits, conversation)
    call_id, amounts = uuid4().hex, metering.amounts_of(expected, is_of_turn=False)
    reached = await astore.change(metering.reserve_beside, conversation, family, call_id, amounts)
    if reached is not None:
        code = limit_notices.CODES[reached.limit.unit]
        raise AgentFailure(limit_notices.notice(reached, asks=False), code=code)
    usages: list[CallUsage] = []
    try:
        yield usages
    finally:
        # Also for a client that has left: until it is settled, the reservation takes from the limits.
        await asyncio.shield(_end_beside(conversation, family, call_id, usages))


async def _end_beside(
    conversation: ConversationRef, family: Sequence[RunLimits], call_id: str, usages: Sequence[CallUsage]
) -> None:
    await record_beside(conversation, usages)
    used = Amounts()
    for usage in usages:
        used = used.plus(metering.amounts_of(usage, is_of_turn=False))
    try:
        await astore.change(metering.settle_beside, conversation, family, call_id, used)
    except (DatabaseProblem, ConversationError) as error:
        logger.warning("The reservation of a call of a model was not removed: %s", error)


@transaction.atomic
def _record_locked(conversation: ConversationRef, usages: Sequence[CallUsage]) -> None:
    # A purged conversation has no totals any more.
    if Conversation.objects.locked().filter(pk=conversation.pk).exists():
        record(conversation, usages)


def _sum(usages: Sequence[CallUsage]) -> Used:
    return Used(
        calls=len(usages),
        unpriced_calls=sum(usage.cost is None for usage in usages),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        cost_nanos=sum(round((usage.cost or 0.0) * NANOS) for usage in usages),
    )


def _model_of(usage: CallUsage) -> str:
    return (usage.model or UNNAMED)[:MODEL_NAME_MAX_LENGTH]
