"""Agents' loops, commands for them, unfinished answers, and repairs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple, Self

from django.db import models
from django.db.models import Case, F, Q, When
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from conversations.engines.planner import unselective
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from sessions_app.processes import Process, is_gone
from sessions_app.shared_clock import lasts

LOOP_LEASE_S = 15.0
"""A process has the right to run a loop for this long after it last renewed it."""
STALLED_S = 60
"""A turn without progress for this long may hang."""


LATELY = timedelta(hours=24)


class LoopStatus(models.TextChoices):
    """Whether a loop exists."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"


THERE = (LoopStatus.STARTING, LoopStatus.RUNNING)
"""A loop in one of these states exists."""


class LoopEnd(models.TextChoices):
    """Why a loop ended."""

    STOPPED = "stopped", "stopped by its user"
    EVICTED = "crowded_out", "closed to make room"
    IDLE = "idle", "closed after nobody used it for long"
    INTERRUPTED = "interrupted", "its process ended"
    FAILED = "failed", "failed"


class ExecutionStatus(models.TextChoices):
    """What the agent is doing (spec V1 §2.6)."""

    IDLE = "idle"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING_FOR_CONFIRMATION = "waiting_for_confirmation"
    FINISHED = "finished"
    ERROR = "error"
    STUCK = "stuck"


SUSPENDED = (ExecutionStatus.PAUSED, ExecutionStatus.WAITING_FOR_CONFIRMATION)
"""A loop in one of these states begins no turn; the turn that it had begun continues later."""


class LoopWork(NamedTuple):
    """What decides whether a conversation's loop has something to do; without a loop two are None."""

    is_unanswered: bool
    execution_status: str | None = None
    decision: bool | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the work that WORK_COLUMNS of a conversation describe."""
        is_unanswered = row["asked_through"] > row["answered_through"]
        return cls(is_unanswered, row["loop__execution_status"], row["loop__decision"])

    @property
    def is_decided(self) -> bool:
        return self.execution_status == ExecutionStatus.WAITING_FOR_CONFIRMATION and self.decision is not None

    @property
    def waits_for_user(self) -> bool:
        """Return whether the loop takes no turn until the user acts; a decided call is still carried out."""
        return self.execution_status in SUSPENDED and not self.is_decided

    @property
    def is_asked(self) -> bool:
        """Return whether a loop would find something to do: an input, or a decision to carry out."""
        return self.is_decided or (self.is_unanswered and not self.waits_for_user)


WORK_COLUMNS = ("asked_through", "answered_through", "loop__execution_status", "loop__decision")
"""The columns of a conversation from which `LoopWork.of` reads."""


def asked_conversations(rows: ConversationQuerySet) -> list[ConversationQuerySet]:
    """Return those of the conversations where a loop would find something to do (`LoopWork.is_asked`).

    There is one query for each kind of work, inputs and decisions.
    """
    # Each has an index of its own, which a condition with OR would not use.
    decided = Q(loop__execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION, loop__decision__isnull=False)
    return [
        rows.unanswered().exclude(loop__execution_status__in=SUSPENDED),
        rows.active().filter(decided),
    ]


def _ended_lately(status: ExecutionStatus, now: datetime) -> Q:
    """Return the condition for loops whose last turn ended so."""
    # Both times, since closing a loop changes its row long after its turn.
    since = now - LATELY
    return Q(execution_status=status, updated_at__gt=since, conversation__updated_at__gt=since)


def has_lease(loop: str = "") -> Case:
    """Return whether the lease of a loop lasts, for a query; `loop` is the prefix of the loop's columns."""
    return Case(When(lasts(f"{loop}lease_expires_at", LOOP_LEASE_S), then=True), default=False)


class AgentLoopQuerySet(models.QuerySet["AgentLoop"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return the loop of one conversation, if it was ever started."""
        return self.filter(conversation_id=conversation.pk)

    def restoring(self) -> Self:
        """Return the loops whose turns wait, because files are restored."""
        return self.filter(lasts("files_held_until", AgentLoop.FILES_HELD_S))

    def there(self) -> Self:
        """Return the loops that are starting or running; a deleted conversation has none."""
        return self.filter(status__in=THERE, conversation__deleted_at__isnull=True)

    def playing(self) -> Self:
        """Return the loops that are playing a turn."""
        return self.filter(status=LoopStatus.RUNNING, execution_status=ExecutionStatus.RUNNING)

    def resumed(self) -> Self:
        """Return the loops whose turn has gone on after a crash, and is not over."""
        return self.filter(recoveries__gt=0, turn_id__isnull=False)

    def going_on(self) -> Self:
        """Return the loops whose turn goes on after a crash and needs no answer of the user."""
        return self.filter(goes_on=True, execution_status=ExecutionStatus.RUNNING)

    def asking(self) -> Self:
        """Return the loops of agents that wait for an approval."""
        return self.filter(execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION)

    def undecided(self) -> Self:
        """Return the loops of agents that wait for an approval that the user has not decided yet."""
        return self.asking().filter(decision=None)

    def with_progress(self) -> Self:
        """Add `progress_at`: when the turn began, or something of it was last stored or streamed."""
        streamed = Coalesce("conversation__unfinished_answer__updated_at", "updated_at")
        return self.annotate(progress_at=Greatest("updated_at", "conversation__updated_at", streamed))

    def stalled(self, now: datetime) -> Self:
        """Return the loops that are playing a turn without progress for STALLED_S."""
        return self.playing().with_progress().filter(progress_at__lte=self.stalled_before(now))

    def stalled_before(self, now: datetime) -> datetime:
        """Return the time since which every turn that has not stalled has made progress."""
        return now - timedelta(seconds=STALLED_S)

    def failed_lately(self, now: datetime) -> Self:
        """Return the loops that failed, or whose last turn did, in the last 24 hours."""
        unmade = Q(status=LoopStatus.ERROR, updated_at__gt=now - LATELY)
        return self.filter(unmade | _ended_lately(ExecutionStatus.ERROR, now))

    def stuck_lately(self, now: datetime) -> Self:
        """Return the loops whose last turn got stuck in the last 24 hours."""
        return self.filter(_ended_lately(ExecutionStatus.STUCK, now))

    def of_user(self, user_id: int | str) -> Self:
        """Return the loops of one user's conversations."""
        return self.filter(unselective("conversation__owner_id", user_id))

    def with_lease(self) -> Self:
        """Add `has_lease`: whether the lease lasts, by the clock of the database."""
        return self.annotate(has_lease=has_lease())

    def held_by(self, process: Process) -> Self:
        """Return those that this process holds."""
        return self.filter(owner_host=process.host, owner_pid=process.pid, owner_started=process.started)

    def least_wanted_first(self) -> Self:
        """Order idle loops before working ones, and each group by the last activity of the conversation."""
        working = Q(execution_status=ExecutionStatus.RUNNING)
        return self.order_by(Case(When(working, then=1), default=0), "conversation__updated_at")

    def locked(self) -> Self:
        """Return the rows locked; their conversations must be locked already."""
        # Rows that refer to it can be inserted meanwhile, and joined rows stay free.
        return self.select_for_update(no_key=True, of=("self",))


_Loops = models.Manager.from_queryset(AgentLoopQuerySet)


class _LeasedLoops(_Loops):  # type: ignore[type-arg]
    """Reads each loop together with whether its lease lasts."""

    # By the clock of the database: that of a host may be wrong (decision 0015).
    def get_queryset(self) -> AgentLoopQuerySet:
        rows: AgentLoopQuerySet = super().get_queryset()  # type: ignore[assignment]
        return rows.with_lease()


class AgentLoop(models.Model):
    """The loop of one conversation; the fence is `Conversation.loop_epoch`, this is its owner and state."""

    conversation = models.OneToOneField(Conversation, models.PROTECT, primary_key=True, related_name="loop")
    status = models.CharField(max_length=10, choices=LoopStatus, default=LoopStatus.STOPPED)
    runtime_status = models.TextField(null=True, blank=True)
    execution_status = models.CharField(max_length=30, choices=ExecutionStatus, default=ExecutionStatus.IDLE)
    agent = models.TextField(default="", blank=True)
    epoch = models.BigIntegerField(default=0)
    owner_host = models.TextField(default="", blank=True)
    owner_pid = models.BigIntegerField(default=0)
    owner_started = models.FloatField(default=0.0)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    turn_id = models.TextField(null=True, blank=True)
    """The turn that has begun and has no `turn` event yet."""
    turn_through = models.BigIntegerField(default=-1)
    """The newest input that the turn answers."""
    turn_agent = models.TextField(default="", db_default="", blank=True)
    """The name of the agent of the turn, or of the last one; empty for the server's default."""
    turn_model = models.JSONField(null=True, blank=True, editable=False)
    """The model that was chosen for the turn, or the last one, alone; None for the conversation's."""
    decision = models.BooleanField(null=True, blank=True)
    """The decision about the call that waits for approval; None until there is one."""
    recoveries = models.PositiveSmallIntegerField(null=True, blank=True)
    """How often the turn, or the last one, went on after its process had gone; None before the first turn."""
    goes_on = models.BooleanField(default=False, db_default=False)
    """Whether the turn goes on after that and no loop has taken it up yet."""
    error = models.TextField(default="", blank=True)
    ended_by = models.CharField(max_length=20, choices=LoopEnd, default="", blank=True)
    """Why it ended; empty while it exists, and before it ever did."""
    refused_writes = models.BigIntegerField(default=0)
    """How often a loop without the lease tried to write."""
    files_held_until = models.DateTimeField(null=True, blank=True)
    """While files are restored, when that is over at the latest: no turn uses them until then."""
    started_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)
    FILES_HELD_S: ClassVar[float] = 300.0
    """A restore takes at most this long; one whose process has died holds up turns until then."""
    has_lease: bool

    objects = _LeasedLoops()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["status", "lease_expires_at"], name="loop_lease"),
            models.Index(fields=["execution_status"], name="loop_doing"),
            # Partial: few of all loops have a turn or a decision.
            models.Index(fields=["turn_id"], name="loop_turn", condition=Q(turn_id__isnull=False)),
            models.Index(fields=["decision"], name="loop_decided", condition=Q(decision__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"Agent loop of {self.conversation}"

    @property
    def owner(self) -> Process:
        return Process(self.owner_host, self.owner_pid, self.owner_started)

    @property
    def is_there(self) -> bool:
        return self.status in THERE

    @property
    def can_be_started(self) -> bool:
        """Return whether to start it changes anything: it is not there, or paused."""
        return not self.is_there or self.execution_status == ExecutionStatus.PAUSED

    @property
    def can_be_stopped(self) -> bool:
        """Whether to stop it changes anything: it is there, or has left a turn that waits for the user."""
        return self.is_there or self.is_suspended

    @property
    def is_suspended(self) -> bool:
        """Return whether it is paused, or has asked for an approval, decided or not."""
        return self.execution_status in SUSPENDED

    @property
    def is_undecided(self) -> bool:
        return self.execution_status == ExecutionStatus.WAITING_FOR_CONFIRMATION and self.decision is None

    @property
    def waits_for_user(self) -> bool:
        return self._work.waits_for_user

    @property
    def is_asked(self) -> bool:
        return self._work.is_asked

    @property
    def may_play(self) -> bool:
        """Return whether it may play a turn now: it has input, or a begun turn that needs no user."""
        return self.is_asked or (self.turn_id is not None and not self.waits_for_user)

    @property
    def is_busy(self) -> bool:
        """Return whether it works, or is about to."""
        return self.execution_status == ExecutionStatus.RUNNING or self.is_asked

    @property
    def _work(self) -> LoopWork:
        return LoopWork(self.conversation.is_unanswered, self.execution_status, self.decision)

    def is_held(self) -> bool:
        """Return whether a process could write for this loop when it was read."""
        if not self.is_there or self.lease_expires_at is None:
            return False
        # A dead owner on this host holds nothing; one on another host holds its lease to its end.
        return self.has_lease and not is_gone(self.owner)


class Verb(models.TextChoices):
    """The commands that a loop's process can be given."""

    STOP = "stop", "stop the loop"
    EVICT = "evict", "close the loop to make room"
    PAUSE = "pause", "pause after the current step"
    INTERRUPT = "interrupt", "end the turn, keep the loop"
    RESUME = "resume", "let a paused loop go on"
    RUN = "run", "answer what stands in the log"


class CommandOutcome(models.TextChoices):
    """The outcome of a command."""

    PENDING = "", "not obeyed yet"
    DONE = "done", "obeyed"
    RUNS = "runs", "a run was on already"
    NOTHING = "nothing", "there was nothing to do"
    REFUSED = "refused", "refused by the loop"
    ENDED = "ended", "the loop ended before"


class LoopCommandQuerySet(models.QuerySet["LoopCommand"]):
    def pending(self) -> Self:
        """Return those that are neither obeyed nor settled, in the order in which they were given."""
        return self.filter(outcome=CommandOutcome.PENDING).order_by("pk")

    def settled_before(self, moment: datetime) -> Self:
        """Return those that were settled before this time."""
        return self.filter(settled_at__lt=moment)


class LoopCommand(models.Model):
    """A request of one process to a loop that another one runs; it is for the loop of one epoch only."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="commands", db_index=False)
    # A later loop of the conversation must not obey a command for an earlier one.
    epoch = models.BigIntegerField()
    verb = models.CharField(max_length=10, choices=Verb)
    through = models.BigIntegerField(default=-1)
    """The newest input when it was given: a stop or interruption gives up inputs up to it."""
    asked_by = models.TextField()
    """The hint group of the process that waits for the outcome."""
    outcome = models.CharField(
        max_length=10, choices=CommandOutcome, default=CommandOutcome.PENDING, blank=True
    )
    detail = models.TextField(default="", blank=True)
    """Why it was refused."""
    given_at = models.DateTimeField(default=timezone.now)
    settled_at = models.DateTimeField(null=True, blank=True)

    objects = models.Manager.from_queryset(LoopCommandQuerySet)()

    class Meta:
        indexes: ClassVar = [
            # Only pending commands are looked for, so the foreign key has no other index.
            models.Index(fields=["conversation"], name="command_pending", condition=Q(outcome="")),
        ]

    def __str__(self) -> str:
        return f"{self.verb} for the loop of {self.conversation_id}"


class UnfinishedAnswer(models.Model):
    """What is shown of an unfinished answer, for readers who join late; removed once the answer is stored."""

    conversation = models.OneToOneField(
        Conversation, models.CASCADE, primary_key=True, related_name="unfinished_answer"
    )
    turn_id = models.TextField()
    event_id = models.TextField()
    """The id that the stored message will have."""
    through = models.BigIntegerField()
    """The index of the last delta that `text` and `reasoning` contain."""
    text = models.TextField()
    reasoning = models.TextField(default="", db_default="")
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"answer of turn {self.turn_id} through {self.through}"


class RepairQuerySet(models.QuerySet["Repair"]):
    def since(self, moment: datetime) -> Self:
        """Return those that were ended, or went on, at this time or later."""
        return self.filter(repaired_at__gte=moment)

    def gone_on(self) -> Self:
        """Return those that were not ended, but went on."""
        return self.filter(has_ended=False)


class Repair(models.Model):
    """A turn that a dead loop left, and that the next one ended or played on, recorded for staff."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="repairs", db_index=False)
    turn_id = models.TextField()
    repaired_at = models.DateTimeField(default=timezone.now, db_index=True)
    host = models.TextField()
    """Together with `pid` the process that took the loop over."""
    pid = models.BigIntegerField()
    continuations = models.PositiveSmallIntegerField(default=0, db_default=0)
    """How often it went on after that."""
    has_ended = models.BooleanField(default=True, db_default=True)
    """Whether it was ended as interrupted; a turn that went on may end by itself."""

    objects = models.Manager.from_queryset(RepairQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "turn_id"], name="repair_once"),
        ]

    def __str__(self) -> str:
        return f"Repair of turn {self.turn_id}"

    @classmethod
    def note(cls, loop: AgentLoop, turn_id: str, *, has_ended: bool) -> None:
        """Record that the loop's present owner has ended a turn that it found, or plays it on."""
        # One row for a turn, however often it goes on.
        repair, is_first = cls.objects.get_or_create(
            conversation_id=loop.conversation_id,
            turn_id=turn_id,
            defaults={"host": loop.owner_host, "pid": loop.owner_pid, "has_ended": has_ended},
        )
        cls.objects.filter(pk=repair.pk).update(
            host=loop.owner_host,
            pid=loop.owner_pid,
            repaired_at=repair.repaired_at if is_first else timezone.now(),
            has_ended=has_ended,
            continuations=F("continuations") + int(not has_ended),
        )
