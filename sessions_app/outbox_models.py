"""The outbox: who is told of what happens to conversations, and how far each of them has been told."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Self

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from conversations.facts import Fact
from conversations.models import Conversation
from sessions_app.encryption import EncryptedTextField

NAME_MAX_LENGTH = 200
BATCH_MAX_EVENTS = 500


class ReceiverKind(models.TextChoices):
    """How a receiver is told."""

    WEBHOOK = "webhook", "webhook"
    HOOK = "hook", "hook in this server"


class ReceiverQuerySet(models.QuerySet["Receiver"]):
    """The questions about many receivers."""

    def served_with(self, hook_names: Iterable[str]) -> Self:
        """Return those that a process with these hooks can tell anything."""
        is_served = Q(kind=ReceiverKind.WEBHOOK) | Q(kind=ReceiverKind.HOOK, name__in=list(hook_names))
        return self.filter(is_served, enabled=True).order_by("pk")


class Receiver(models.Model):
    """Whoever is told of the conversations of one owner, or of all: a webhook, or a hook of this server."""

    kind = models.CharField(max_length=10, choices=ReceiverKind, default=ReceiverKind.WEBHOOK)
    name = models.CharField(max_length=NAME_MAX_LENGTH)
    """A webhook's is for people; a hook's says where its code is."""
    base_url = models.TextField(default="", blank=True)
    sealed = EncryptedTextField(editable=False)
    """JSON: the headers by name, and the session key."""
    header_names = models.JSONField(default=list, blank=True)
    has_session_key = models.BooleanField(default=False)
    event_buffer_size = models.IntegerField(
        default=5, validators=[MinValueValidator(1), MaxValueValidator(BATCH_MAX_EVENTS)]
    )
    flush_delay_s = models.FloatField(
        default=30.0, validators=[MinValueValidator(0.0), MaxValueValidator(3600.0)]
    )
    """So long a buffer that is not full waits for more events."""
    timeout_s = models.FloatField(default=30.0, validators=[MinValueValidator(0.1), MaxValueValidator(300.0)])
    enabled = models.BooleanField(default=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="receivers"
    )
    """Whose conversations it is told of; nobody's means everybody's."""
    created_at = models.DateTimeField(default=timezone.now)

    begins_after = models.BigIntegerField(default=0)
    """The key of the newest event when it was made: what came later is what it is told."""
    event_position = models.BigIntegerField(default=0)
    """All events with a key up to this are in its deliveries."""
    fact_position = models.BigIntegerField(default=0)
    """All noted facts with a key up to this are in its deliveries."""
    skipped_until = models.DateTimeField(null=True, blank=True, editable=False)
    """Noted facts up to this time were removed while it was disabled, before it was told of them."""

    objects = models.Manager.from_queryset(ReceiverQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name"], name="receiver_hook_once", condition=Q(kind=ReceiverKind.HOOK)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def unheard_facts(self) -> list[Fact]:
        """The noted facts that this kind of receiver is not told."""
        return [Fact.LOOP] if self.kind == ReceiverKind.WEBHOOK else []

    def rotate(self) -> bool:
        """Encrypt what is sealed with the newest key unless it is; say whether this changed the row.

        What is stored meanwhile is never written over. Raise SecretUnreadable.
        """
        if self.sealed.is_newest:
            return False
        newest = self.sealed.resealed()
        return bool(Receiver.objects.filter(pk=self.pk, sealed=self.sealed).update(sealed=newest))


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    """The questions about many deliveries."""

    def pending(self) -> Self:
        """Return those where something is left to be told."""
        return self.filter(due_at__isnull=False)

    def failing(self) -> Self:
        """Return those whose last try failed."""
        return self.pending().filter(tries__gt=0)

    def free(self, now: datetime) -> Self:
        """Return those that nobody is at."""
        return self.filter(Q(held_until=None) | Q(held_until__lte=now))

    def due(self, now: datetime) -> Self:
        """Return those that may be tried now, the longest due first."""
        return self.free(now).filter(due_at__lte=now).order_by("due_at", "pk")


class Delivery(models.Model):
    """How far one receiver has been told of one conversation: a cursor, and the right to move it."""

    receiver = models.ForeignKey(Receiver, models.CASCADE, related_name="deliveries", db_index=False)
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="deliveries")
    through = models.BigIntegerField(default=-1)
    """The seq of the newest event that the receiver has taken."""
    known = models.BigIntegerField(default=-1)
    """The seq of the newest event that is known to be for it."""
    told = models.BigIntegerField(default=0)
    """The key of the newest noted fact that it has taken."""
    known_fact = models.BigIntegerField(default=0)
    owes_status = models.BooleanField(default=False)
    """The last event that it took ended a run, and it has not been told the status since."""
    since = models.DateTimeField(default=timezone.now)
    """When the oldest event that it has not taken became known, or its last batch was taken."""
    due_at = models.DateTimeField(null=True, blank=True)
    """When to try next; None when nothing is left to be told."""
    tries = models.IntegerField(default=0)
    """How often in a row it failed."""
    last_error = models.TextField(default="", blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    delivered_at = models.DateTimeField(null=True, blank=True)

    claim = models.CharField(max_length=32, default="", blank=True)
    """Who may move the cursor: nobody whose claim is another's by now."""
    held_until = models.DateTimeField(null=True, blank=True)
    owner_host = models.TextField(default="", blank=True)
    owner_pid = models.BigIntegerField(default=0)
    owner_started = models.FloatField(default=0.0)

    objects = models.Manager.from_queryset(DeliveryQuerySet)()

    class Meta:
        verbose_name_plural = "deliveries"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["receiver", "conversation"], name="delivery_once"),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["receiver", "due_at"], name="delivery_due", condition=Q(due_at__isnull=False)
            ),
            models.Index(fields=["held_until"], name="delivery_held", condition=Q(held_until__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"delivery {self.pk} through {self.through}"


class NotedFactQuerySet(models.QuerySet["NotedFact"]):
    """The questions about many noted facts."""

    def after(self, pk: int) -> Self:
        """Return those that whoever was told this one has not been told, in order."""
        return self.filter(pk__gt=pk).order_by("pk")

    def of(self, conversation: Conversation, receiver: Receiver) -> Self:
        """Return those of one conversation that this receiver is told."""
        rows = self.filter(conversation_id=conversation.pk)
        return rows.exclude(fact__in=receiver.unheard_facts)


class NotedFact(models.Model):
    """Something that happened to a conversation beside its log, noted in the same transaction."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="noted_facts")
    fact = models.CharField(max_length=10)
    seq = models.BigIntegerField()
    """It happened after all events with a lower one."""
    noted_at = models.DateTimeField(default=timezone.now)

    objects = models.Manager.from_queryset(NotedFactQuerySet)()

    def __str__(self) -> str:
        return f"{self.fact} before event {self.seq}"
