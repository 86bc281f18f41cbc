"""Leases, the right to run a conversation's loop, as rows: claim, renew, release.

Lock order everywhere: Conversation, then AgentLoop. A claim raises `Conversation.loop_epoch`; every write
of a loop carries its epoch and is refused once it is not the newest (`conversations/log/fence`).
"""

from __future__ import annotations

from collections.abc import Mapping

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from conversations import domain_events, live
from conversations.domain_events import DomainEvent
from conversations.exceptions import ConversationNotFound, LoopUnavailable
from conversations.log import fence
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef
from conversations.server_log import ids_of, log_on_commit
from sessions_app.loops import commands
from sessions_app.models import LOOP_LEASE_S, AgentLoop, LoopEnd, LoopStatus
from sessions_app.processes import Process
from sessions_app.shared_clock import ahead

LEASE_S = LOOP_LEASE_S


class LoopHeld(LoopUnavailable):
    """Another process runs the loop."""

    code = "loop_held"


def held(loop: AgentLoop) -> LoopHeld:
    return LoopHeld(f"The loop runs in process {loop.owner_pid} on {loop.owner_host}.")


def expect(conversation: ConversationRef) -> None:
    """Show a loop as starting before it is claimed, if none was ever started.

    Without a lease it counts as abandoned: if no process claims it, the next sweep ends it.
    """
    AgentLoop.objects.get_or_create(
        conversation_id=conversation.pk,
        defaults={"status": LoopStatus.STARTING},
    )
    transaction.on_commit(lambda: announce(conversation), robust=True)


def claim(
    conversation: ConversationRef,
    process: Process,
    *,
    agent: str,
    lease_s: float = LEASE_S,
    only_abandoned: bool = False,
) -> int:
    """Take the loop's lease and return its epoch.

    Raise LoopHeld while another living process holds it, with `only_abandoned` while any does, including
    this one; ConversationNotFound for a deleted conversation.
    """
    now = timezone.now()
    with transaction.atomic():
        row = locked(conversation)
        loop = locked_loop(row)
        if loop.is_held() and (only_abandoned or loop.owner != process):
            raise held(loop)
        # From this commit on every write of the loop before is refused, even if its process only hung.
        epoch = row.loop_epoch + 1
        Conversation.objects.filter(pk=conversation.pk).update(loop_epoch=epoch, listed_at=now)
        AgentLoop.objects.of(conversation).update(
            status=LoopStatus.STARTING,
            agent=agent,
            epoch=epoch,
            owner_host=process.host,
            owner_pid=process.pid,
            owner_started=process.started,
            lease_expires_at=ahead(lease_s),
            error="",
            ended_by="",
            started_at=now,
            updated_at=now,
        )
    announce(conversation)
    return epoch


def locked(conversation: ConversationRef) -> Conversation:
    """Return the conversation's row, locked until the transaction ends.

    Raise ConversationNotFound for a deleted one, ConversationBusy if it stays locked elsewhere.
    """
    row = lock(Conversation.objects.active(), conversation)
    if row is None:
        raise ConversationNotFound("Conversation not found.")
    return row


def locked_loop(row: Conversation) -> AgentLoop:
    """Return the loop of a locked conversation, locked too; create it if none was ever started."""
    loop, _ = AgentLoop.objects.locked().get_or_create(conversation_id=row.pk)
    loop.conversation = row
    return loop


def locked_by(conversation: ConversationRef, epoch: int) -> Conversation:
    """Lock the conversation for the loop of `epoch`. Raise Fenced if there is a newer one."""
    return _fenced(locked(conversation), epoch)


def _fenced(row: Conversation, epoch: int) -> Conversation:
    if error := fence.broken(epoch, row.loop_epoch):
        raise error
    return row


def renew(held: Mapping[int, int], process: Process, *, lease_s: float = LEASE_S) -> set[int]:
    """Extend this process's leases (conversation → epoch); return the conversations whose leases it lost.

    Deleted conversations are among them.
    """
    mine = AgentLoop.objects.held_by(process).filter(conversation_id__in=list(held)).there()
    with transaction.atomic():
        # Waiting for a row while holding others could deadlock with a batch of appends. The lease of a
        # locked one is extended the next time.
        free = mine.select_for_update(no_key=True, skip_locked=True, of=("self",)).order_by("pk")
        AgentLoop.objects.filter(pk__in=[loop.pk for loop in free]).update(lease_expires_at=ahead(lease_s))
    still = dict(mine.values_list("conversation_id", "epoch"))
    return {pk for pk, epoch in held.items() if still.get(pk) != epoch}


def count_refused_write(conversation: ConversationRef) -> None:
    """Count a refused write of a loop that a newer one has replaced."""
    AgentLoop.objects.of(conversation).update(refused_writes=F("refused_writes") + 1)


def ready(conversation: ConversationRef, epoch: int) -> None:
    """Record that the loop takes turns from now on."""
    with transaction.atomic():
        locked_by(conversation, epoch)
        AgentLoop.objects.of(conversation).update(
            status=LoopStatus.RUNNING, runtime_status="STATUS$READY", updated_at=timezone.now()
        )
        domain_events.record(conversation.pk, DomainEvent.LOOP)
        log_on_commit("Agent started", **ids_of(conversation), epoch=epoch)
    announce(conversation)


def release(
    conversation: ConversationRef,
    epoch: int,
    *,
    ended_by: LoopEnd | None = LoopEnd.INTERRUPTED,
    error: str = "",
) -> None:
    """Release the lease, also of a deleted conversation, and record why the loop ended.

    The loop's unfinished commands are settled with it. `ended_by` is None if its turn goes on: the next
    loop is about to start.
    """
    now = timezone.now()
    with transaction.atomic():
        row = lock(Conversation.objects.all(), conversation)  # also a deleted one, whose loop has to end
        if row is None:
            raise ConversationNotFound("Conversation not found.")
        _fenced(row, epoch)
        Conversation.objects.filter(pk=conversation.pk).update(listed_at=now)
        AgentLoop.objects.of(conversation).update(
            status=LoopStatus.ERROR if error else LoopStatus.STOPPED,
            runtime_status="STATUS$ERROR" if error else None,
            lease_expires_at=None,
            error=error,
            ended_by=ended_by or "",
            updated_at=now,
        )
        left = commands.left_behind(conversation, before=epoch + 1)
        settled = commands.settle_left(conversation, left, is_stopped=ended_by is LoopEnd.STOPPED)
        domain_events.record(conversation.pk, DomainEvent.LOOP)
        log_on_commit(
            "Agent failed" if error else "Agent stopped",
            **ids_of(conversation),
            epoch=epoch,
            ended_by=ended_by or "",
        )
    commands.announce_settled(settled)
    announce(conversation)


def announce(conversation: ConversationRef) -> None:
    """Announce to readers and lists that the loop's status changed; they read it themselves."""
    live.announce_changed(conversation)
