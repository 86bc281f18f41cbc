"""Commands for loops of other processes, as rows: given, obeyed, settled.

A command names its loop by the epoch: a later loop ignores it. It is stored under the conversation's
lock, which claiming and releasing a loop also need, so that no ended loop is given one. Hints only speed
things up: the holder of a loop also looks for commands by itself.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Set
from datetime import timedelta
from typing import NamedTuple, Self

from django.db import transaction
from django.db.models.functions import Greatest
from django.utils import timezone

from conversations import live
from conversations.exceptions import ConversationError, ConversationNotFound
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef
from sessions_app.models import AgentLoop, CommandOutcome, LoopCommand, Verb
from sessions_app.processes import Process

KEPT_S = 3600.0
"""A settled command is kept this long for its caller."""

_GIVE_UP = (Verb.STOP, Verb.INTERRUPT)
"""After one of these commands, earlier inputs are not answered."""


class CommandPending(ConversationError):
    """The command is stored but not obeyed yet; it will be."""

    code = "pending"

    def __init__(self, verb: Verb) -> None:
        super().__init__(_PENDING_WORDS[verb])
        # What the loop is doing meanwhile, in one word.
        self.state = _PENDING_STATES[verb]


_PENDING_STATES = {
    Verb.STOP: "stopping",
    Verb.EVICT: "stopping",
    Verb.PAUSE: "pausing",
    Verb.INTERRUPT: "stopping",
    Verb.RESUME: "starting",
    Verb.RUN: "starting",
}
_NOT_YET = "The process that runs the agent has not answered yet"
_PENDING_WORDS = {
    Verb.STOP: "The agent has not let go yet; it stops as soon as it does.",
    Verb.EVICT: "The agent has not let go yet; it stops as soon as it does.",
    Verb.PAUSE: f"{_NOT_YET}; the agent pauses as soon as it does.",
    Verb.INTERRUPT: f"{_NOT_YET}; the agent is interrupted as soon as it does.",
    Verb.RESUME: f"{_NOT_YET}; the agent resumes as soon as it does.",
    Verb.RUN: f"{_NOT_YET}; the agent runs as soon as it does.",
}


class ReceivedCommand(NamedTuple):
    id: int
    conversation_pk: int
    epoch: int
    verb: Verb
    through: int

    @classmethod
    def of(cls, row: LoopCommand) -> Self:
        return cls(row.pk, row.conversation_id, row.epoch, Verb(row.verb), row.through)


class Settled(NamedTuple):
    outcome: CommandOutcome
    detail: str


def group_of(process: Process) -> str:
    """Return the group by which a process receives hints about commands."""
    # A digest: names of groups are short, and have no spaces, which the name of a host may have.
    name = f"{process.host} {process.pid} {process.started}"
    return f"process.{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def give(
    conversation: ConversationRef,
    verb: Verb,
    process: Process,
    *,
    only_in_turn: bool = False,
    until: float | None = None,
) -> int | None:
    """Store a command for the present loop, notify its holder, and return the command's id.

    None if no living process except `process`, which waits for the outcome, holds the loop; with
    `only_in_turn` also if the loop plays no turn. Raise ConversationNotFound for a deleted conversation,
    and ConversationBusy if it stays locked until the moment `until` of `time.monotonic`: then nothing is
    stored.
    """
    with transaction.atomic():
        wait_s = None if until is None else until - time.monotonic()
        row = lock(Conversation.objects.active(), conversation, wait_s=wait_s)
        if row is None:
            raise ConversationNotFound("Conversation not found.")
        # Under the lock: the loop cannot be released before the command is there to be settled with it.
        loop = _held_elsewhere(conversation, process)
        if loop is None or (only_in_turn and loop.turn_id is None):
            return None
        command = LoopCommand.objects.create(
            conversation_id=conversation.pk,
            epoch=loop.epoch,
            verb=verb,
            through=row.asked_through,
            asked_by=group_of(process),
        )
    live.announce(group_of(loop.owner), {"kind": "command"})
    return command.pk


def wake_holder(conversation: ConversationRef, process: Process) -> AgentLoop | None:
    """Notify another living process that its loop has work; return None if no other one holds it."""
    loop = _held_elsewhere(conversation, process)
    if loop is not None:
        live.announce(group_of(loop.owner), {"kind": "wake", "conversation": conversation.pk})
    return loop


def _held_elsewhere(conversation: ConversationRef, process: Process) -> AgentLoop | None:
    loop = AgentLoop.objects.of(conversation).first()
    if loop is None or loop.owner == process or not loop.is_held():
        return None
    return loop


def pending(held: Mapping[int, int]) -> list[ReceivedCommand]:
    """Return the commands for these loops (conversation → epoch), in order, by one query."""
    rows = LoopCommand.objects.pending().filter(conversation_id__in=list(held))
    return [ReceivedCommand.of(row) for row in rows if held[row.conversation_id] == row.epoch]


def settled(command_id: int) -> Settled | None:
    """Return the outcome of a command; None while there is none."""
    row = LoopCommand.objects.filter(pk=command_id).first()
    if row is None:  # its conversation was purged
        return Settled(CommandOutcome.ENDED, "")
    return Settled(CommandOutcome(row.outcome), row.detail) if row.outcome else None


def settle(command_id: int, outcome: CommandOutcome, detail: str = "") -> None:
    """Record the outcome of a command unless it has one, and notify its caller."""
    rows = LoopCommand.objects.pending().filter(pk=command_id)
    asked_by = rows.values_list("asked_by", flat=True).first()
    if rows.order_by().update(outcome=outcome, detail=detail, settled_at=timezone.now()):
        announce_settled([(command_id, str(asked_by))])


class LeftBehind(NamedTuple):
    """The commands that a loop had not obeyed before it ended."""

    verbs: Set[Verb]
    through: int
    """Inputs up to this one are not to be answered; -1 without such a command."""
    rows: Collection[LoopCommand]


def left_behind(conversation: ConversationRef, *, before: int) -> LeftBehind:
    """Return the commands for loops of earlier epochs; their conversation must be locked."""
    rows = list(LoopCommand.objects.pending().filter(conversation_id=conversation.pk, epoch__lt=before))
    through = max((row.through for row in rows if row.verb in _GIVE_UP), default=-1)
    return LeftBehind({Verb(row.verb) for row in rows}, through, rows)


def settle_left(
    conversation: ConversationRef, left: LeftBehind, *, is_stopped: bool
) -> list[tuple[int, str]]:
    """Settle the commands of an ended loop; return the callers to notify after the commit.

    The conversation must be locked. Inputs before a stop are not answered. An eviction is DONE; so are a
    stop and an interrupt if no turn is left, and a pause if `is_stopped`. All others are ENDED: the waiting
    process tries them again.
    """
    if not left.rows:
        return []
    if left.through >= 0:
        rows = Conversation.objects.filter(pk=conversation.pk)
        rows.update(answered_through=Greatest("answered_through", left.through))
    # A stop is done once its turn is over; the next claim or its caller ends that turn.
    has_turn = AgentLoop.objects.of(conversation).filter(turn_id__isnull=False).exists()
    over = {Verb.EVICT} if has_turn else {Verb.EVICT, *_GIVE_UP}
    over |= {Verb.PAUSE} if is_stopped else set()
    for outcome, verbs in (
        (CommandOutcome.DONE, over),
        (CommandOutcome.ENDED, set(Verb) - over),
    ):
        pks = [row.pk for row in left.rows if row.verb in verbs]
        LoopCommand.objects.filter(pk__in=pks).update(outcome=outcome, settled_at=timezone.now())
    return [(row.pk, row.asked_by) for row in left.rows]


def announce_settled(settled: Iterable[tuple[int, str]]) -> None:
    """Notify the processes that wait for the outcome of these commands (id, group)."""
    for command_id, group in settled:
        live.announce(group, {"kind": "settled", "command": command_id})


def forget_settled() -> None:
    """Remove commands that were settled long ago."""
    LoopCommand.objects.settled_before(timezone.now() - timedelta(seconds=KEPT_S)).delete()
