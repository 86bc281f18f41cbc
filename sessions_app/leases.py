"""The right to run a conversation's loop, as rows: claim, renew, begin and end turns, release.

Lock order everywhere: Conversation, then AgentLoop. A claim raises `Conversation.loop_epoch`; every
write of a loop carries its epoch and is refused once it is not the newest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4, uuid5

from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest
from django.utils import timezone

from conversations import dialects, facts, live
from conversations.dialects import AgentState, columns, v0
from conversations.events import (
    Appended,
    Authored,
    Dialect,
    EventEnvelope,
    EventFilter,
    Kind,
    Metrics,
    NewEvent,
)
from conversations.exceptions import (
    ConversationNotFound,
    EventConflict,
    Fenced,
    LoopUnavailable,
)
from conversations.facts import Fact
from conversations.locks import lock
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from conversations.store import store
from sessions_app.models import AgentLoop, ExecutionStatus, LoopEnd, LoopStatus, Repair, UnfinishedAnswer
from sessions_app.processes import Process

T = TypeVar("T")
Row = TypeVar("Row", bound=models.Model)

LEASE_S = 15.0
SWEEP_PAGE = 200

SUSPENDED = (ExecutionStatus.PAUSED, ExecutionStatus.WAITING_FOR_CONFIRMATION)
"""A loop that is one of these takes no turn until the user says so."""

ENDED = (ExecutionStatus.FINISHED, ExecutionStatus.ERROR, ExecutionStatus.STUCK)
"""A run that is one of these is over."""


class LoopHeld(LoopUnavailable):
    """Another process runs the loop."""

    code = "loop_held"


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnStart:
    """A turn to play: new, or suspended earlier and going on."""

    turn_id: str
    through: int
    """The newest input that it answers."""
    answered_through: int
    """The newest input that earlier turns have answered."""
    decision: bool | None
    """What the user decided about the call that waits; None when none waits."""
    decision_reason: str
    counted: Metrics
    """The conversation's totals."""


def expect(conversation: ConversationRef) -> None:
    """Let readers see a loop as starting before it is claimed, where there never was one.

    Without a lease it counts as abandoned, should nobody claim it after all: the next sweep ends it.
    """
    AgentLoop.objects.get_or_create(
        conversation_id=conversation.pk,
        defaults={"desired": LoopStatus.RUNNING, "status": LoopStatus.STARTING},
    )
    announce(conversation)


def claim(
    conversation: ConversationRef,
    process: Process,
    *,
    agent: str,
    lease_s: float = LEASE_S,
    only_abandoned: bool = False,
) -> int:
    """Take the loop's lease and return its epoch.

    Raise LoopHeld while another living process has it, with `only_abandoned` while any has, this one
    too; ConversationNotFound for a deleted conversation.
    """
    now = timezone.now()
    with transaction.atomic():
        row = locked(conversation)
        loop, _ = AgentLoop.objects.locked().get_or_create(conversation_id=conversation.pk)
        if loop.is_held(now) and (only_abandoned or loop.owner != process):
            raise LoopHeld(f"The loop runs in process {loop.owner_pid} on {loop.owner_host}.")
        epoch = row.loop_epoch + 1
        Conversation.objects.filter(pk=conversation.pk).update(loop_epoch=epoch, listed_at=now)
        AgentLoop.objects.of(conversation).update(
            desired=LoopStatus.RUNNING,
            status=LoopStatus.STARTING,
            agent=agent,
            epoch=epoch,
            owner_host=process.host,
            owner_pid=process.pid,
            owner_started=process.started,
            lease_expires_at=now + timedelta(seconds=lease_s),
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
    row = lock(Conversation.objects.standing(), conversation)
    if row is None:
        raise ConversationNotFound("There is no such conversation.")
    return row


def _locked_by(conversation: ConversationRef, epoch: int) -> Conversation:
    """Lock the conversation for the loop of `epoch`. Raise Fenced if there is a newer one."""
    return _fenced(locked(conversation), epoch)


def _fenced(row: Conversation, epoch: int) -> Conversation:
    if row.loop_epoch != epoch:
        raise Fenced(f"The loop of epoch {epoch} was replaced by that of epoch {row.loop_epoch}.")
    return row


def renew(held: Mapping[int, int], process: Process, *, lease_s: float = LEASE_S) -> set[int]:
    """Extend this process's leases (conversation → epoch); return the conversations that it lost.

    Those that were deleted are among them; one that is locked just now is not, and waits for the next time.
    """
    expires_at = timezone.now() + timedelta(seconds=lease_s)
    mine = AgentLoop.objects.held_by(process).filter(conversation_id__in=list(held)).there()
    with transaction.atomic():
        # Waiting for a row while having others would close a ring with a batch of appends.
        free = mine.select_for_update(no_key=True, skip_locked=True, of=("self",)).order_by("pk")
        AgentLoop.objects.filter(pk__in=[loop.pk for loop in free]).update(lease_expires_at=expires_at)
    still = dict(mine.values_list("conversation_id", "epoch"))
    return {pk for pk, epoch in held.items() if still.get(pk) != epoch}


def count_refused_write(conversation: ConversationRef) -> None:
    """Note that a loop without the lease tried to write."""
    AgentLoop.objects.of(conversation).update(refused_writes=F("refused_writes") + 1)


def ready(conversation: ConversationRef, epoch: int) -> None:
    """Note that the loop takes turns from now on."""
    with transaction.atomic():
        _locked_by(conversation, epoch)
        AgentLoop.objects.of(conversation).update(
            status=LoopStatus.RUNNING, runtime_status="STATUS$READY", updated_at=timezone.now()
        )
        facts.note(conversation.pk, Fact.LOOP)
    announce(conversation)


def greet(conversation: ConversationRef, epoch: int) -> None:
    """Let V0 readers see that the agent waits for them, unless the log's newest state says so. Raise Fenced.

    Their clients take no input before they have been shown a state.
    """
    if conversation.dialect is not Dialect.V0:
        return
    with transaction.atomic():
        row = _locked_by(conversation, epoch)
        loop = AgentLoop.objects.locked().get(conversation_id=conversation.pk)
        if loop.execution_status in SUSPENDED or _may_play(row, loop) or _waits_already(conversation):
            return
        event_id = str(uuid4())
        authored = dialects.author(conversation.dialect).state(state=AgentState.IDLE, event_id=event_id)
        store().append(conversation, [new_event(authored, event_id)], epoch=epoch)


def _waits_already(conversation: ConversationRef) -> bool:
    states = EventFilter(types=v0.STATE_TYPES)
    newest = store().search_events(conversation, states, newest_first=True, limit=1).events
    return bool(newest) and newest[0]["text"].startswith(("awaiting_user_input", "finished"))


def release(
    conversation: ConversationRef,
    epoch: int,
    *,
    ended_by: LoopEnd = LoopEnd.INTERRUPTED,
    error: str = "",
) -> None:
    """Give the lease back, of a deleted conversation too, and say why the loop is gone."""
    now = timezone.now()
    with transaction.atomic():
        row = lock(Conversation.objects.all(), conversation)
        if row is None:
            raise ConversationNotFound("There is no such conversation.")
        _fenced(row, epoch)
        Conversation.objects.filter(pk=conversation.pk).update(listed_at=now)
        AgentLoop.objects.of(conversation).update(
            desired=LoopStatus.STOPPED,
            status=LoopStatus.ERROR if error else LoopStatus.STOPPED,
            runtime_status="STATUS$ERROR" if error else None,
            lease_expires_at=None,
            error=error,
            ended_by=ended_by,
            updated_at=now,
        )
        facts.note(conversation.pk, Fact.LOOP)
    announce(conversation)


def begin_turn(conversation: ConversationRef, epoch: int) -> TurnStart | None:
    """Begin the next turn, or go on with a suspended one; None when there is nothing to do.

    Without anything unanswered the loop is idle as of this transaction: an input that is committed
    later finds it so. A turn that goes on answers what it began with; what was asked meanwhile is
    for the next one. Repeating a call whose outcome is unknown returns the same turn. Raise Fenced.
    """
    now = timezone.now()
    with transaction.atomic():
        row = _locked_by(conversation, epoch)
        loop = AgentLoop.objects.locked().get(conversation_id=conversation.pk)
        if not _may_play(row, loop):
            return None
        if loop.turn_id is None:
            turn_id, through = uuid4().hex, row.asked_through
        else:
            turn_id, through = loop.turn_id, loop.turn_through
        AgentLoop.objects.of(conversation).update(
            turn_id=turn_id,
            turn_through=through,
            execution_status=ExecutionStatus.RUNNING,
            updated_at=now,
        )
        Conversation.objects.filter(pk=conversation.pk).update(listed_at=now)
        facts.note(conversation.pk, Fact.LOOP)
    announce(conversation)
    return TurnStart(
        turn_id=turn_id,
        through=through,
        answered_through=row.answered_through,
        decision=loop.decision,
        decision_reason=loop.decision_reason,
        counted=totals_of(row),
    )


def totals_of(row: Conversation) -> Metrics:
    """Return what was counted of a conversation so far."""
    return Metrics(
        accumulated_cost=row.accumulated_cost,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
    )


def _may_play(row: Conversation, loop: AgentLoop) -> bool:
    if loop.execution_status == ExecutionStatus.PAUSED:
        return False
    if loop.execution_status == ExecutionStatus.WAITING_FOR_CONFIRMATION:
        return loop.decision is not None
    return row.is_unanswered or loop.turn_id is not None


def turn_event_id(turn_id: str, part: str) -> str:
    """Return the id of a turn's one event of this part: `end`, `partial`, `failed …`."""
    return str(uuid5(UUID(turn_id), part))


Naming = Callable[[str], str]
"""Gives an event of the server its id: the one that belongs to it, or another."""


def own_id(event_id: str) -> str:
    """Return the id itself: whatever is repeated under it is stored once."""
    return event_id


def fresh_id(event_id: str) -> str:
    """Return an id that nobody can have used."""
    return str(uuid4())


def under_a_free_id(append: Callable[[Naming], T]) -> T:
    """Append under the events' own ids, or under fresh ones when a client has taken one of those.

    Readers are shown the ids of an answer and a turn before these are stored, and a client may
    record events under any id: that must not keep a turn from ending.
    """
    try:
        return append(own_id)
    except EventConflict:
        return append(fresh_id)


def end_of_turn(
    conversation: ConversationRef,
    turn_id: str,
    state: AgentState,
    *,
    reason: str = "",
    naming: Naming = own_id,
) -> NewEvent:
    """Return the `turn` event: its id is the turn's, so that a repetition ends it only once."""
    event_id = naming(turn_event_id(turn_id, "end"))
    authored = dialects.author(conversation.dialect).state(state=state, event_id=event_id, reason=reason)
    return new_event(authored, event_id, turn_id=turn_id, kind=Kind.TURN)


def new_event(
    authored: Authored,
    event_id: str,
    *,
    turn_id: str | None = None,
    kind: Kind | None = None,
    cause_seq: int | None = None,
    is_input: bool = False,
) -> NewEvent:
    """Return what the server wrote itself as an event on its way into the log."""
    return NewEvent(
        event_id=event_id,
        payload=authored.payload,
        reading=authored.reading,
        kind=kind,
        turn_id=turn_id,
        cause_seq=cause_seq,
        is_input=is_input,
        stamp_offset=authored.stamp_offset,
    )


def finish_turn(
    conversation: ConversationRef, through: int, status: ExecutionStatus
) -> Callable[[Sequence[Appended]], None]:
    """Return the rest of a turn's last append: everything up to `through` is answered or given up on.

    Repeated after the turn has ended it changes nothing.
    """

    def finish(appended: Sequence[Appended]) -> None:
        now = timezone.now()
        turn = AgentLoop.objects.of(conversation).filter(turn_id__isnull=False)
        if not turn.update(
            turn_id=None, execution_status=status, decision=None, decision_reason="", updated_at=now
        ):
            return
        rows = Conversation.objects.filter(pk=conversation.pk)
        rows.update(answered_through=Greatest("answered_through", through), listed_at=now)
        UnfinishedAnswer.objects.filter(conversation_id=conversation.pk).delete()

    return finish


def suspend_turn(
    conversation: ConversationRef, status: ExecutionStatus
) -> Callable[[Sequence[Appended]], None]:
    """Return the rest of the append that suspends a turn: it goes on later under the same id.

    Repeated it changes nothing: the user may have decided since.
    """

    def suspend(appended: Sequence[Appended]) -> None:
        if not any(each.is_new for each in appended):
            return
        now = timezone.now()
        Conversation.objects.filter(pk=conversation.pk).update(listed_at=now)
        AgentLoop.objects.of(conversation).update(execution_status=status, updated_at=now)
        if status == ExecutionStatus.WAITING_FOR_CONFIRMATION:
            _forget_decision(conversation)  # an older one is about another call

    return suspend


def carry_out(conversation: ConversationRef) -> Callable[[Sequence[Appended]], None]:
    """Return the rest of the append that answers a decided call; until then a pause keeps the decision."""

    def forget(appended: Sequence[Appended]) -> None:
        if any(each.is_new for each in appended):
            _forget_decision(conversation)

    return forget


def _forget_decision(conversation: ConversationRef) -> None:
    AgentLoop.objects.of(conversation).update(decision=None, decision_reason="")


def decide(
    conversation: ConversationRef, accepted: bool, reason: str, *, event_id: str | None = None
) -> None:
    """Store the user's decision about the call that waits. Raise LoopUnavailable if none does.

    A V1 conversation runs from an approval on, and answers what was said while it waited. Repeated
    under the same `event_id` it changes nothing: another call may wait by now.
    """
    event_id = event_id or str(uuid4())
    authored = dialects.author(conversation.dialect).decision(accepted=accepted, event_id=event_id)
    runs = accepted and conversation.dialect is Dialect.V1

    def record(appended: Sequence[Appended]) -> None:
        if not any(each.is_new for each in appended):
            return
        waiting = AgentLoop.objects.of(conversation).filter(
            execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION, decision=None
        )
        decision = {"decision": accepted, "decision_reason": columns.clean(reason)}
        goes_on = {"execution_status": ExecutionStatus.RUNNING} if runs else {}
        if not waiting.update(**decision, **goes_on, updated_at=timezone.now()):
            raise LoopUnavailable("Nothing waits for approval.")
        if runs:
            _ask_for_what_was_said(conversation)

    store().append(conversation, [new_event(authored, event_id)], also=record)


def _ask_for_what_was_said(conversation: ConversationRef) -> None:
    rows = Conversation.objects.filter(pk=conversation.pk)
    seq = store().newest_input(conversation, after=rows.values_list("asked_through", flat=True).get())
    if seq is not None:
        rows.update(asked_through=seq)


def pause(conversation: ConversationRef) -> bool:
    """Pause a loop that plays no turn; say whether it plays none. A playing one pauses itself.

    A turn that waits for approval goes on waiting, and a run of V1 that has ended stays so.
    """
    events = steered(conversation, AgentState.PAUSED)
    with transaction.atomic():
        locked(conversation)
        loop, _ = AgentLoop.objects.locked().get_or_create(conversation_id=conversation.pk)
        if loop.execution_status in SUSPENDED or _has_ended(conversation, loop):
            return True
        if loop.execution_status == ExecutionStatus.RUNNING and loop.turn_id is not None:
            return False
        store().append(conversation, events, also=suspend_turn(conversation, ExecutionStatus.PAUSED))
    announce(conversation)
    return True


def _has_ended(conversation: ConversationRef, loop: AgentLoop) -> bool:
    return conversation.dialect is Dialect.V1 and loop.execution_status in ENDED


def steered(
    conversation: ConversationRef, state: AgentState, *, turn_id: str | None = None, reason: str = ""
) -> list[NewEvent]:
    """Return the events that say that the user led the agent into this state."""
    author = dialects.author(conversation.dialect)
    state_id, steering_id = str(uuid4()), str(uuid4())
    events = [author.state(state=state, event_id=state_id, reason=reason)]
    if (steering := author.steering(state=state, event_id=steering_id)) is not None:
        events.append(steering)
    ids = (state_id, steering_id)
    return [new_event(each, event_id, turn_id=turn_id) for each, event_id in zip(events, ids, strict=False)]


def resume(conversation: ConversationRef) -> None:
    """Let a paused loop take turns again; nothing changes for one that is not paused."""
    paused = AgentLoop.objects.of(conversation).filter(execution_status=ExecutionStatus.PAUSED)
    if paused.update(execution_status=ExecutionStatus.IDLE, updated_at=timezone.now()):
        announce(conversation)


def is_asked(conversation: ConversationRef) -> bool:
    """Say whether a loop would find something to do."""
    return any(rows.filter(pk=conversation.pk).exists() for rows in _asked())


def asked_among(pks: Collection[int]) -> set[int]:
    """Return which of these conversations' loops would find something to do."""
    return {pk for rows in _asked() for pk in rows.filter(pk__in=pks).values_list("pk", flat=True)}


def asked_through(conversation: ConversationRef) -> int:
    """Return the seq of the newest input, -1 if there is none."""
    return Conversation.objects.values_list("asked_through", flat=True).get(pk=conversation.pk)


def needing_a_loop(limit: int, *, besides: Collection[int] = (), after: int = 0) -> list[ConversationRef]:
    """Return conversations with something to do, whose loop no living process runs, at most `limit`.

    `besides`: not these, whose loops run here. Those behind the key `after` come first.
    """
    now = timezone.now()
    found: dict[int, ConversationRef] = {}
    for is_behind in (True, False):
        for asked in _asked():
            rows = asked.exclude(pk__in=besides).select_related("loop")
            rows = rows.filter(pk__gt=after) if is_behind else rows.filter(pk__lte=after)
            unheld = (row for row in _by_pk(rows) if not hasattr(row, "loop") or not row.loop.is_held(now))
            found.update((row.pk, row.ref) for row in islice(unheld, limit - len(found)))
    return list(found.values())


def _by_pk(rows: models.QuerySet[Row]) -> Iterator[Row]:
    """Go through all rows, reading a page at a time."""
    after: Any = 0
    while page := list(rows.filter(pk__gt=after).order_by("pk")[:SWEEP_PAGE]):
        yield from page
        after = page[-1].pk


def _asked() -> list[ConversationQuerySet]:
    """Return the conversations where a loop would find something to do, by what that is."""
    waiting = ExecutionStatus.WAITING_FOR_CONFIRMATION
    return [
        Conversation.objects.unanswered().exclude(loop__execution_status__in=SUSPENDED),
        Conversation.objects.standing().filter(loop__execution_status=waiting, loop__decision__isnull=False),
    ]


def is_suspended(conversation: ConversationRef) -> bool:
    """Say whether the conversation stands and its loop waits for the user, wherever it runs, if at all.

    One that is to go on and that no living process runs counts as well: it has a turn to end.
    """
    loop = AgentLoop.objects.of(conversation).filter(conversation__deleted_at=None).first()
    if loop is None or loop.execution_status in SUSPENDED:
        return loop is not None
    is_held = loop.is_held(timezone.now())
    return loop.turn_id is not None and not is_held and _is_suspended(conversation, loop.turn_id, loop)


def abandoned(limit: int, *, besides: Collection[int] = ()) -> list[ConversationRef]:
    """Return conversations whose loop was left behind by a process that is gone or lost its lease.

    At most `limit`, and not those of `besides`, whose loops run here, nor one that is about to be claimed.
    """
    now = timezone.now()
    expected = Q(epoch=0, updated_at__gt=now - timedelta(seconds=LEASE_S))
    loops = AgentLoop.objects.there().exclude(pk__in=besides).exclude(expected).select_related("conversation")
    unheld = (loop.conversation.ref for loop in _by_pk(loops) if not loop.is_held(now))
    return list(islice(unheld, limit))


def recover(conversation: ConversationRef, process: Process) -> None:
    """Take an abandoned loop over just to end its turn, and let it go.

    The turn of a deleted conversation is left for when it is restored and started again.
    """
    try:
        epoch = claim(conversation, process, agent="", only_abandoned=True)
        repair(conversation, epoch)
        release(conversation, epoch)
    except (LoopHeld, Fenced):
        pass  # a loop that was started meanwhile repairs by itself
    except ConversationNotFound:
        AgentLoop.objects.of(conversation).update(
            status=LoopStatus.STOPPED, lease_expires_at=None, updated_at=timezone.now()
        )


def repair(conversation: ConversationRef, epoch: int) -> None:
    """End the turn that a dead loop left behind, once, and keep a record: its partial text kept and marked.

    A turn that waits for approval or is paused is not interrupted: it goes on.
    """
    loop = AgentLoop.objects.of(conversation).get()
    if loop.turn_id is None or _is_suspended(conversation, loop.turn_id, loop):
        return
    turn = PendingTurn(loop.turn_id, loop.turn_through, is_suspended=False)

    def record() -> None:
        taker = {"host": loop.owner_host, "pid": loop.owner_pid}
        Repair.objects.get_or_create(conversation_id=conversation.pk, turn_id=turn.turn_id, defaults=taker)

    cut_off(
        conversation,
        epoch,
        turn,
        AgentState.INTERRUPTED,
        ExecutionStatus.ERROR,
        reason=INTERRUPTED_REASON,
        also=record,
    )


def cut_off(
    conversation: ConversationRef,
    epoch: int,
    turn: PendingTurn,
    state: AgentState,
    status: ExecutionStatus,
    *,
    reason: str,
    code: str = "AgentError",
    also: Callable[[], object] | None = None,
) -> None:
    """End a turn that came to no end of its own: what it had said is kept and marked, its calls have failed.

    `code` is that of an error. Nothing changes if it has ended already; otherwise `also` is done in the
    same transaction. Raise Fenced.
    """

    def write(naming: Naming) -> None:
        end = end_of_turn(conversation, turn.turn_id, state, reason=reason, naming=naming)
        said = said_of_end(conversation, turn.turn_id, state, code=code, reason=reason, naming=naming)
        # V1 clients look for the reason once they have seen the state, V0 clients before.
        ending = [end, *said] if conversation.dialect is Dialect.V1 else [*said, end]
        events = [*interrupted_turn(conversation, turn.turn_id, naming), *ending]
        finish = finish_turn(conversation, turn.through, status)
        store().append(conversation, events, epoch=epoch, also=finish)

    with transaction.atomic():
        require_epoch(conversation, epoch)
        if not AgentLoop.objects.of(conversation).filter(turn_id=turn.turn_id).exists():
            return
        under_a_free_id(write)
        if also is not None:
            also()
    announce(conversation)


def said_of_end(
    conversation: ConversationRef,
    turn_id: str,
    state: AgentState,
    *,
    code: str,
    reason: str,
    naming: Naming = own_id,
) -> list[NewEvent]:
    """Return what is said beside the state in which a turn ends, where its wire has words for it."""
    author = dialects.author(conversation.dialect)
    event_id = naming(turn_event_id(turn_id, "error" if state is AgentState.ERROR else "steering"))
    if state is AgentState.ERROR:
        authored: Authored | None = author.error(code=code, detail=reason, event_id=event_id)
    else:
        authored = author.steering(state=state, event_id=event_id)
    return [] if authored is None else [new_event(authored, event_id, turn_id=turn_id)]


def stop_turn(conversation: ConversationRef, epoch: int, *, through: int) -> None:
    """End a turn that waits for the user, if there is one, and give up on what was asked up to `through`.

    Readers are told that the agent stopped either way, unless a run of V1 is over or paused already; a
    V1 conversation is paused from then on. Raise Fenced.
    """
    status = ExecutionStatus.PAUSED if conversation.dialect is Dialect.V1 else ExecutionStatus.IDLE
    with transaction.atomic():
        require_epoch(conversation, epoch)
        turn = pending_turn(conversation, epoch)
        if turn is not None:
            cut_off(conversation, epoch, turn, AgentState.STOPPED, status, reason=STOPPED_REASON)
        elif _is_at_rest(conversation):
            return
        else:
            events = steered(conversation, AgentState.STOPPED, reason=STOPPED_REASON)
            store().append(conversation, events, epoch=epoch)
        give_up(conversation, epoch, through, status)
    announce(conversation)


def _is_at_rest(conversation: ConversationRef) -> bool:
    if conversation.dialect is not Dialect.V1:
        return False
    at_rest = [*ENDED, ExecutionStatus.PAUSED]
    return AgentLoop.objects.of(conversation).filter(execution_status__in=at_rest).exists()


INTERRUPTED_REASON = "The server stopped while the agent was working; what it had said is kept."
STOPPED_REASON = "The agent was stopped."
CROWDED_OUT_REASON = "The loop was closed to make room for another conversation; what it had said is kept."


def interrupted_turn(conversation: ConversationRef, turn_id: str, naming: Naming = own_id) -> list[NewEvent]:
    """Return what completes the log of a turn that was cut off: its partial answer, its failed calls."""
    author = dialects.author(conversation.dialect)
    events: list[NewEvent] = []
    answer = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk, turn_id=turn_id).first()
    if answer is not None and answer.text:
        event_id = naming(answer.event_id)
        authored = author.agent_message(text=answer.text, event_id=event_id, interrupted=True)
        events.append(new_event(authored, event_id, turn_id=turn_id))
    for call in store().open_calls(conversation, turn_id):
        event_id = naming(turn_event_id(turn_id, f"failed {call['seq']}"))
        authored = author.tool_failed(
            name=_tool_of(call),
            reason="The call was interrupted.",
            tool_call_id=call["tool_call_id"] or "",
            event_id=event_id,
            call_event_id=call["id"],
        )
        events.append(new_event(authored, event_id, turn_id=turn_id, cause_seq=call["seq"]))
    return events


def refused_calls(
    conversation: ConversationRef, turn_id: str, reason: str, naming: Naming = own_id
) -> list[NewEvent]:
    """Return what says that the user refused the calls of a turn that nothing has answered."""
    author = dialects.author(conversation.dialect)
    events: list[NewEvent] = []
    for call in store().open_calls(conversation, turn_id):
        event_id = naming(turn_event_id(turn_id, f"refused {call['seq']}"))
        authored = author.tool_rejected(
            name=_tool_of(call),
            reason=reason,
            tool_call_id=call["tool_call_id"] or "",
            event_id=event_id,
            call_event_id=call["id"],
        )
        events.append(new_event(authored, event_id, turn_id=turn_id, cause_seq=call["seq"]))
    return events


def _tool_of(call: EventEnvelope) -> str:
    return dialects.called_tool(json.loads(call["payload"]), Dialect(call["dialect"]))[0]


def announce(conversation: ConversationRef) -> None:
    """Tell readers and lists that the loop's status changed; they read it for themselves."""
    live.announce_changed(conversation)


def require_epoch(conversation: ConversationRef, epoch: int) -> None:
    """Lock the conversation and make sure that the loop of `epoch` still has it. Raise Fenced."""
    _locked_by(conversation, epoch)


class PendingTurn(NamedTuple):
    """A turn that has begun and not ended."""

    turn_id: str
    through: int
    is_suspended: bool


def pending_turn(conversation: ConversationRef, epoch: int) -> PendingTurn | None:
    """Return the turn that the loop of `epoch` has begun and not ended, if there is one."""
    loop = AgentLoop.objects.of(conversation).filter(epoch=epoch, turn_id__isnull=False).first()
    if loop is None or loop.turn_id is None:
        return None
    is_suspended = _is_suspended(conversation, loop.turn_id, loop)
    return PendingTurn(loop.turn_id, loop.turn_through, is_suspended)


def _is_suspended(conversation: ConversationRef, turn_id: str, loop: AgentLoop) -> bool:
    """Say whether nobody plays the turn: it waits for the user, or is to go on and nobody has begun yet.

    A run that goes on is `running` from the request on; the log says whether it was taken up.
    """
    if loop.execution_status != ExecutionStatus.RUNNING:
        return True
    state = store().newest_state(conversation, turn_id)
    return state is not None and not state.startswith("running")


def give_up_unheld(conversation: ConversationRef, through: int) -> None:
    """Answer nothing that was asked up to `through`, where no living process runs the loop."""
    with transaction.atomic():
        row = lock(Conversation.objects.standing(), conversation)
        loop = AgentLoop.objects.of(conversation).first()
        if row is None or (loop is not None and loop.is_held(timezone.now())):
            return
        rows = Conversation.objects.filter(pk=row.pk)
        rows.update(answered_through=Greatest("answered_through", through), listed_at=timezone.now())
        # A run that was asked for and never begun.
        asked = AgentLoop.objects.of(conversation).filter(turn_id=None)
        asked.filter(execution_status=ExecutionStatus.RUNNING).update(execution_status=ExecutionStatus.IDLE)
        # One that was claimed and left behind may have a turn to end: that is the sweep's.
        unclaimed = Q(status=LoopStatus.STARTING, epoch=0)
        AgentLoop.objects.of(conversation).filter(Q(status=LoopStatus.ERROR) | unclaimed).update(
            status=LoopStatus.STOPPED, ended_by=LoopEnd.STOPPED, error="", updated_at=timezone.now()
        )
    announce(conversation)


def fail(conversation: ConversationRef, error: str) -> None:
    """Note that no loop could be started, unless a living process runs one; a later start may do better."""
    now = timezone.now()
    with transaction.atomic():
        locked(conversation)
        loop, _ = AgentLoop.objects.locked().get_or_create(conversation_id=conversation.pk)
        if loop.is_held(now):
            return
        if conversation.dialect is Dialect.V1 and loop.execution_status == ExecutionStatus.RUNNING:
            _fail_run(conversation, loop, error)
        elif (loop.status, loop.error) == (LoopStatus.ERROR, error):
            return
        Conversation.objects.filter(pk=conversation.pk).update(listed_at=now)
        AgentLoop.objects.of(conversation).update(
            status=LoopStatus.ERROR,
            runtime_status="STATUS$ERROR",
            ended_by=LoopEnd.FAILED,
            error=error,
            updated_at=now,
        )
        facts.note(conversation.pk, Fact.LOOP)
    announce(conversation)


def _fail_run(conversation: ConversationRef, loop: AgentLoop, error: str) -> None:
    """End a run that nobody can play, and the turn that it was to go on with."""
    code = "LoopUnavailable"
    if loop.turn_id is not None:
        turn = PendingTurn(loop.turn_id, loop.turn_through, is_suspended=True)
        ending = (AgentState.ERROR, ExecutionStatus.ERROR)
        cut_off(conversation, locked(conversation).loop_epoch, turn, *ending, reason=error, code=code)
        return
    author = dialects.author(conversation.dialect)
    state_id, error_id = str(uuid4()), str(uuid4())
    state = author.state(state=AgentState.ERROR, event_id=state_id)
    said = author.error(code=code, detail=error, event_id=error_id)
    store().append(conversation, [new_event(state, state_id), new_event(said, error_id)])
    AgentLoop.objects.of(conversation).update(execution_status=ExecutionStatus.ERROR)


def give_up(
    conversation: ConversationRef,
    epoch: int,
    through: int,
    status: ExecutionStatus = ExecutionStatus.IDLE,
) -> None:
    """Answer nothing that was asked up to `through`: whoever stops an agent wants silence. Raise Fenced.

    A run of V1 that is over or paused stays so: readers were told.
    """
    with transaction.atomic():
        row = _locked_by(conversation, epoch)
        rows = Conversation.objects.filter(pk=row.pk)
        rows.update(answered_through=Greatest("answered_through", through))
        if not _is_at_rest(conversation):
            AgentLoop.objects.of(conversation).update(execution_status=status, updated_at=timezone.now())
