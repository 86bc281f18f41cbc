"""The leases of loops against the epochs of their conversations."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import F, Q, QuerySet

from conversations.models import ConversationQuerySet, DamageKind
from conversations.verification.damage import PER_CONVERSATION_MAX, Damage
from conversations.verification.store import VerificationStep
from sessions_app.models import THERE, AgentLoop

EXAMINED = frozenset({DamageKind.LEASE})


def steps(rows: ConversationQuerySet | None = None) -> Iterator[VerificationStep]:
    """Verify the leases of these conversations' loops; without any, of all."""
    loops = AgentLoop.objects.all() if rows is None else AgentLoop.objects.filter(conversation__in=rows)
    found = list(_damages(loops))
    yield VerificationStep(found=found, is_cut_short=len(found) >= PER_CONVERSATION_MAX)


def _damages(loops: QuerySet[AgentLoop]) -> Iterator[Damage]:
    # A claim raises both, a purge only the conversation's.
    for loop in _some(loops.filter(epoch__gt=F("conversation__loop_epoch"))):
        epoch = loop.conversation.loop_epoch
        yield _damage(loop, f"The lease has the epoch {loop.epoch}, but the conversation's is {epoch}.")
    for loop in _some(loops.filter(status__in=THERE, lease_expires_at__isnull=False, owner_pid=0)):
        yield _damage(loop, "The lease names no process that holds it.")
    beyond = Q(turn_id__isnull=False, turn_through__gte=F("conversation__next_seq"))
    for loop in _some(loops.filter(beyond)):
        yield _damage(loop, f"The turn answers event {loop.turn_through}, which the log does not have.")


def _some(loops: QuerySet[AgentLoop]) -> QuerySet[AgentLoop]:
    return loops.select_related("conversation").order_by("pk")[:PER_CONVERSATION_MAX]


def _damage(loop: AgentLoop, detail: str) -> Damage:
    return Damage(DamageKind.LEASE, loop.conversation.pk, loop.conversation.public_id, None, detail)
