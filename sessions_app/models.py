"""Loops, connections, users' marks, drafts, settings and secrets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import ClassVar, Self
from uuid import uuid4

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from conversations.models import Conversation, ConversationRef, new_public_id
from conversations.planner import of_many
from sessions_app.access_models import ACCESS_GROUP as ACCESS_GROUP
from sessions_app.access_models import TOKEN_NAME_MAX_LENGTH as TOKEN_NAME_MAX_LENGTH
from sessions_app.access_models import TOKEN_PREFIX as TOKEN_PREFIX
from sessions_app.access_models import AccessRemoval as AccessRemoval
from sessions_app.access_models import ApiToken as ApiToken
from sessions_app.access_models import ApiTokenQuerySet as ApiTokenQuerySet
from sessions_app.access_models import ConversationKey as ConversationKey
from sessions_app.access_models import Grant as Grant
from sessions_app.access_models import Scope as Scope
from sessions_app.encryption import EncryptedTextField
from sessions_app.idempotency_models import RecordedAnswer as RecordedAnswer
from sessions_app.outbox_models import Delivery as Delivery
from sessions_app.outbox_models import NotedFact as NotedFact
from sessions_app.outbox_models import Receiver as Receiver
from sessions_app.outbox_models import ReceiverKind as ReceiverKind
from sessions_app.processes import Process, is_gone
from sessions_app.usage_models import Usage as Usage
from sessions_app.v1_models import AgentSetup as AgentSetup
from sessions_app.v1_models import StartTask as StartTask

PRESENCE_S = 60
"""A connection that was not seen for this long counts as closed."""


STALLED_S = 60
"""A turn without progress for this long may hang."""
LATELY = timedelta(hours=24)


class LoopStatus(models.TextChoices):
    """Whether a loop exists."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"


class LoopEnd(models.TextChoices):
    """Why a loop ended."""

    STOPPED = "stopped", "stopped by its user"
    CROWDED_OUT = "crowded_out", "closed to make room"
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


def _ended_lately(status: ExecutionStatus, now: datetime) -> Q:
    """Return the condition for loops whose last turn ended so; closing a loop changes its row, too."""
    since = now - LATELY
    return Q(execution_status=status, updated_at__gt=since, conversation__updated_at__gt=since)


class AgentLoopQuerySet(models.QuerySet["AgentLoop"]):
    """Queries for many loops."""

    def of(self, conversation: ConversationRef) -> Self:
        """Return the loop of one conversation, if it was ever started."""
        return self.filter(conversation_id=conversation.pk)

    def there(self) -> Self:
        """Return the loops that are starting or running; a deleted conversation has none."""
        return self.filter(
            status__in=[LoopStatus.STARTING, LoopStatus.RUNNING], conversation__deleted_at__isnull=True
        )

    def playing(self) -> Self:
        """Return the loops that are playing a turn."""
        return self.filter(status=LoopStatus.RUNNING, execution_status=ExecutionStatus.RUNNING)

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
        return self.filter(of_many("conversation__owner_id", user_id))

    def held_by(self, process: Process) -> Self:
        """Return those that this process holds."""
        return self.filter(owner_host=process.host, owner_pid=process.pid, owner_started=process.started)

    def least_wanted_first(self) -> Self:
        """Order idle loops before working ones, and each group by the last activity of the conversation."""
        working = Q(execution_status=ExecutionStatus.RUNNING)
        return self.order_by(models.Case(models.When(working, then=1), default=0), "conversation__updated_at")

    def locked(self) -> Self:
        """Return the rows locked; their conversations must be locked already."""
        return self.select_for_update(no_key=True, of=("self",))


class AgentLoop(models.Model):
    """The loop of one conversation; the fence is `Conversation.loop_epoch`, this is its owner and state."""

    conversation = models.OneToOneField(Conversation, models.PROTECT, primary_key=True, related_name="loop")
    desired = models.CharField(max_length=10, default=LoopStatus.STOPPED)
    """`running` or `stopped`: the last request."""
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
    decision = models.BooleanField(null=True, blank=True)
    """The decision about the call that waits for approval; None until there is one."""
    decision_reason = models.TextField(default="", blank=True)
    error = models.TextField(default="", blank=True)
    ended_by = models.CharField(max_length=20, choices=LoopEnd, default="", blank=True)
    """Why it ended; empty while it exists, and before it ever did."""
    refused_writes = models.BigIntegerField(default=0)
    """How often a loop without the lease tried to write."""
    started_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = models.Manager.from_queryset(AgentLoopQuerySet)()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["status", "lease_expires_at"], name="loop_lease"),
            models.Index(fields=["execution_status"], name="loop_doing"),
            models.Index(fields=["turn_id"], name="loop_turn", condition=Q(turn_id__isnull=False)),
            models.Index(fields=["decision"], name="loop_decided", condition=Q(decision__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"Agent loop of {self.conversation.shown_title}"

    @property
    def owner(self) -> Process:
        """The process that holds, or last held, the lease."""
        return Process(self.owner_host, self.owner_pid, self.owner_started)

    @property
    def is_there(self) -> bool:
        """Whether the loop is starting or running."""
        return self.status in (LoopStatus.STARTING, LoopStatus.RUNNING)

    @property
    def can_be_started(self) -> bool:
        """Whether to start it changes anything: it is not there, or paused."""
        return not self.is_there or self.execution_status == ExecutionStatus.PAUSED

    @property
    def can_be_stopped(self) -> bool:
        """Whether to stop it changes anything: it is there, or has left a turn that waits for the user."""
        waits = self.execution_status in (ExecutionStatus.PAUSED, ExecutionStatus.WAITING_FOR_CONFIRMATION)
        return self.is_there or waits

    def is_held(self, now: datetime) -> bool:
        """Say whether another process may still write for this loop: a dead owner holds nothing."""
        if not self.is_there or self.lease_expires_at is None:
            return False
        return self.lease_expires_at > now and not is_gone(self.owner)


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
    """Queries for commands."""

    def pending(self) -> Self:
        """Return those that are neither obeyed nor settled, in the order in which they were given."""
        return self.filter(outcome=CommandOutcome.PENDING).order_by("pk")

    def settled_before(self, moment: datetime) -> Self:
        """Return those that were settled before this time."""
        return self.filter(settled_at__lt=moment)


class LoopCommand(models.Model):
    """A request of one process to a loop that another one runs; it is for the loop of one epoch only."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="commands", db_index=False)
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
            models.Index(fields=["conversation"], name="command_pending", condition=Q(outcome="")),
        ]

    def __str__(self) -> str:
        return f"{self.verb} for the loop of {self.conversation_id}"


class UnfinishedAnswer(models.Model):
    """The text of an unfinished answer, for readers who join late; removed once the answer is stored."""

    conversation = models.OneToOneField(
        Conversation, models.CASCADE, primary_key=True, related_name="unfinished_answer"
    )
    turn_id = models.TextField()
    event_id = models.TextField()
    """The id that the stored message will have."""
    through = models.BigIntegerField()
    """The index of the last delta that `text` contains."""
    text = models.TextField()
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"answer of turn {self.turn_id} through {self.through}"


class RepairQuerySet(models.QuerySet["Repair"]):
    """Queries for repaired turns."""

    def since(self, moment: datetime) -> Self:
        """Return those that were ended at this time or later."""
        return self.filter(repaired_at__gte=moment)


class Repair(models.Model):
    """A turn that a dead loop left and the next one ended, recorded for staff."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="repairs", db_index=False)
    turn_id = models.TextField()
    repaired_at = models.DateTimeField(default=timezone.now, db_index=True)
    host = models.TextField()
    """Together with `pid` the process that took the loop over."""
    pid = models.BigIntegerField()

    objects = models.Manager.from_queryset(RepairQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "turn_id"], name="repair_once"),
        ]

    def __str__(self) -> str:
        return f"Repair of turn {self.turn_id}"


class ConnectionQuerySet(models.QuerySet["Connection"]):
    """Queries for connections."""

    def present(self) -> Self:
        """Return the connections that were seen lately."""
        return self.filter(last_seen_at__gt=timezone.now() - timedelta(seconds=PRESENCE_S))

    def expired(self) -> Self:
        """Return those that a killed process left."""
        return self.filter(last_seen_at__lte=timezone.now() - timedelta(seconds=PRESENCE_S))

    def counted(self, conversation_pks: Iterable[int]) -> dict[int, int]:
        """Return the number for each of these conversations; those without connections are omitted."""
        rows = self.filter(conversation_id__in=list(conversation_pks)).order_by()
        return dict(rows.values_list("conversation_id").annotate(models.Count("pk")))

    def with_ids(self, ids: Iterable[str]) -> Self:
        """Return the connections with these ids."""
        return self.filter(pk__in=list(ids))


def new_connection_id() -> str:
    """Return an id for a connection."""
    return uuid4().hex


class Connection(models.Model):
    """One live socket: presence that expires by itself."""

    id = models.CharField(max_length=64, primary_key=True, default=new_connection_id)
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="connections")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    door = models.CharField(max_length=20)
    since = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = models.Manager.from_queryset(ConnectionQuerySet)()

    def __str__(self) -> str:
        return f"{self.door} connection {self.id}"


class MarkQuerySet(models.QuerySet["Mark"]):
    """Queries for users' marks on conversations."""

    def of(self, user_pk: int, conversation: ConversationRef) -> Self:
        """Return the mark of one user on one conversation, if there is one."""
        return self.filter(user_id=user_pk, conversation_id=conversation.pk)

    def of_user(self, user_pk: int) -> Self:
        """Return all of a user's marks."""
        return self.filter(user_id=user_pk)

    def pinned(self) -> Self:
        """Return the pinned ones, the newest first."""
        return self.filter(pinned_at__isnull=False).order_by("-pinned_at", "-pk")

    def archived(self) -> Self:
        """Return the archived ones."""
        return self.filter(archived_at__isnull=False)


class Mark(models.Model):
    """One user's marks on a conversation: how far it was seen, pinned, archived."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="marks")
    through = models.BigIntegerField(default=-1)
    """The seq of the last event that the user has seen, -1 for none."""
    through_at = models.DateTimeField(null=True, blank=True)
    """When that event was stored; null while the user has seen nothing."""
    pinned_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)

    objects = models.Manager.from_queryset(MarkQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "conversation"], name="read_mark_once"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["user", "-pinned_at"], name="mark_pinned", condition=Q(pinned_at__isnull=False)
            ),
            models.Index(
                fields=["user", "conversation"],
                name="mark_archived",
                condition=Q(archived_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"mark of user {self.user_id} on {self.conversation_id}"


class DraftQuerySet(models.QuerySet["Draft"]):
    """Queries for drafts."""

    def of(self, user_pk: int, conversation: ConversationRef | None) -> Self:
        """Return the draft of a user in a conversation, or of a new one, if it exists."""
        pk = None if conversation is None else conversation.pk
        return self.filter(user_id=user_pk, **({"conversation_id": pk} if pk else {"conversation": None}))

    def written_from(self, user_pk: int, moment: datetime, pk: int) -> Self:
        """Return those of a user that were written after this place, in order."""
        further = Q(updated_at__gt=moment) | Q(updated_at=moment, pk__gt=pk)
        rows = self.filter(further, user_id=user_pk, updated_at__gte=moment)  # redundant, for the index
        return rows.order_by("updated_at", "pk")

    def changed_from(self, user_pk: int, number: int, pk: int, *, end: int) -> Self:
        """Return those of a user that were written after this place, in order of commits, below `end`."""
        further = Q(written_in__gt=number) | Q(written_in=number, pk__gt=pk)
        rows = self.filter(further, user_id=user_pk, written_in__gte=number, written_in__lt=end)
        return rows.order_by("written_in", "pk")


class Draft(models.Model):
    """A message that a user is writing: in a conversation, or the first one of a new conversation."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False)
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="drafts", null=True, blank=True
    )
    text = models.TextField(default="", blank=True)
    images = models.JSONField(default=list, blank=True)
    """Their data URLs, in order."""
    version = models.BigIntegerField()
    """The number of writes; a draft is never removed, only emptied, so that this never decreases."""
    updated_at = models.DateTimeField(default=timezone.now)
    written_in = models.BigIntegerField(null=True, blank=True, editable=False)
    """The number of the last change (change_order); None if it is older than those."""
    size = models.BigIntegerField(null=True, blank=True, editable=False)
    """Bytes of the text and the images; None if it was written before this was counted (`usage`)."""

    objects = models.Manager.from_queryset(DraftQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "conversation"], name="draft_once"),
            models.UniqueConstraint(
                fields=["user"], condition=Q(conversation=None), name="draft_of_a_new_one_once"
            ),
            models.CheckConstraint(condition=Q(version__gte=1), name="draft_version"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["user", "updated_at"], name="draft_written"),
            models.Index(
                fields=["user", "written_in"], name="draft_changed", condition=Q(written_in__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"draft {self.version} of user {self.user_id} in {self.conversation_id}"


def size_of_draft(text: str, images: Iterable[str]) -> int:
    """Return the bytes of a draft; its images are ASCII."""
    return len(text.encode(errors="surrogatepass")) + sum(map(len, images))


CONDENSER_SIZE_MIN = 20


class UserSettings(models.Model):
    """A user's settings (spec V0 §1.9), null meaning not set; keys, and what may hold some, are Secrets."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="user_settings"
    )
    language = models.TextField(null=True, blank=True)
    agent = models.TextField(null=True, blank=True)
    max_iterations = models.IntegerField(null=True, blank=True)
    security_analyzer = models.TextField(null=True, blank=True)
    confirmation_mode = models.BooleanField(null=True, blank=True)
    llm_model = models.TextField(null=True, blank=True)
    llm_base_url = models.TextField(null=True, blank=True)
    remote_runtime_resource_factor = models.IntegerField(null=True, blank=True)
    enable_default_condenser = models.BooleanField(default=True)
    enable_sound_notifications = models.BooleanField(default=False)
    enable_proactive_conversation_starters = models.BooleanField(default=True)
    enable_solvability_analysis = models.BooleanField(default=True)
    user_consents_to_analytics = models.BooleanField(null=True, blank=True)
    sandbox_base_container_image = models.TextField(null=True, blank=True)
    sandbox_runtime_container_image = models.TextField(null=True, blank=True)
    max_budget_per_task = models.FloatField(null=True, blank=True)
    condenser_max_size = models.IntegerField(
        null=True, blank=True, validators=[MinValueValidator(CONDENSER_SIZE_MIN)]
    )
    email = models.TextField(null=True, blank=True)
    email_verified = models.BooleanField(null=True, blank=True)
    git_user_name = models.TextField(null=True, blank=True)
    git_user_email = models.TextField(null=True, blank=True)
    v1_enabled = models.BooleanField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "user settings"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(condenser_max_size__isnull=True) | Q(condenser_max_size__gte=CONDENSER_SIZE_MIN),
                name="user_settings_condenser_size",
            ),
        ]

    def __str__(self) -> str:
        return f"Settings of {self.user}"


SECRET_NAME_MAX_LENGTH = 255


class SecretKind(models.TextChoices):
    """The kind of a secret."""

    SETTING = "setting"
    """A key among the settings; its name is the setting's."""
    PROVIDER_TOKEN = "provider_token"  # noqa: S105 - a kind, not a password
    """A git provider's token; its name is the provider's."""
    CUSTOM = "custom"
    """A secret for the user's agents; the user chooses its name."""


class SecretQuerySet(models.QuerySet["Secret"]):
    """Queries for secrets; none decrypts a value."""

    def of(self, user_id: int) -> Self:
        """Return one user's secrets, by name."""
        return self.filter(user_id=user_id).order_by("name")

    def of_kinds(self, *kinds: SecretKind) -> Self:
        """Return those of these kinds."""
        return self.filter(kind__in=kinds)

    def named(self, kind: SecretKind, name: str) -> Self:
        """Return those of this kind and name: at most one for each user."""
        return self.filter(kind=kind, name=name)

    def page(self, *, after: int, limit: int) -> Self:
        """Return the next secrets of all users, each with its user, in an order that never changes."""
        return self.filter(pk__gt=after).select_related("user").order_by("pk")[:limit]


class Secret(models.Model):
    """A value that belongs to a user and is encrypted at rest; never blank, never shown."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="secrets", db_index=False)
    kind = models.CharField(max_length=20, choices=SecretKind)
    name = models.CharField(max_length=SECRET_NAME_MAX_LENGTH)
    value = EncryptedTextField(editable=False)
    description = models.TextField(default="", blank=True)
    host = models.TextField(null=True, blank=True)
    """Of a provider token: the provider's own host, if it is not the public one."""
    provider_user_id = models.TextField(null=True, blank=True)
    """Of a provider token: the id of its holder at the provider."""
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    objects = models.Manager.from_queryset(SecretQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "kind", "name"], name="secret_once"),
            models.CheckConstraint(condition=~Q(name=""), name="secret_has_a_name"),
            models.CheckConstraint(
                condition=Q(kind=SecretKind.PROVIDER_TOKEN) | Q(host=None, provider_user_id=None),
                name="secret_of_a_provider",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def rotate(self) -> bool:
        """Encrypt the value with the newest key unless it is; return whether this changed the row.

        A value that is stored meanwhile is never overwritten, only re-encrypted. Raise SecretUnreadable.
        """
        while not self.value.is_newest:
            read, newest = self.value, self.value.resealed()
            row = Secret.objects.filter(pk=self.pk)
            if row.filter(value=read).update(value=newest):
                self.value = newest
                return True
            stored = row.values_list("value", flat=True).first()
            if stored is None:
                return False  # it is gone
            self.value = stored
        return False


class Polarity(models.TextChoices):
    """A user's opinion of a conversation."""

    POSITIVE = "positive"
    NEGATIVE = "negative"


class Permissions(models.TextChoices):
    """The audience that a user chose for their feedback; it stays on this server either way."""

    PUBLIC = "public"
    PRIVATE = "private"


class Feedback(models.Model):
    """A user's feedback on a conversation, for the operators of this server (spec V0 §1.7)."""

    feedback_id = models.CharField(max_length=32, unique=True, default=new_public_id)
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="feedback")
    polarity = models.CharField(max_length=10, choices=Polarity)
    permissions = models.CharField(max_length=10, choices=Permissions, default=Permissions.PRIVATE)
    version = models.TextField(default="", blank=True)
    """Of the client."""
    email = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        verbose_name_plural = "feedback"

    def __str__(self) -> str:
        return f"{self.polarity} feedback {self.feedback_id}"


ATTACHMENT_NAME_MAX_LENGTH = 200


class AttachmentQuerySet(models.QuerySet["Attachment"]):
    """Queries for attachments; only `content_of` reads their content."""

    def of(self, conversation: ConversationRef) -> Self:
        """Return those of one conversation, the oldest first."""
        return self.filter(conversation_id=conversation.pk).order_by("pk")

    def content_of(self, name: str) -> bytes | None:
        """Return the bytes of the one with this name; None if there is none."""
        content = self.filter(name=name).values_list("content", flat=True).first()
        return None if content is None else bytes(content)


class Attachment(models.Model):
    """A file that the user added to the conversation, byte for byte."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="attachments", db_index=False)
    name = models.CharField(max_length=ATTACHMENT_NAME_MAX_LENGTH)
    size = models.BigIntegerField()
    """Bytes of the content."""
    content = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now)

    objects = models.Manager.from_queryset(AttachmentQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["conversation", "name"], name="attachment_once"),
            models.CheckConstraint(condition=~Q(name=""), name="attachment_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name
