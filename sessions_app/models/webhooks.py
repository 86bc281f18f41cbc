"""The outbox: the endpoints of notifications, and how far each has got with each conversation."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Self

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Case, Q, When
from django.db.models.functions import Now
from django.utils import timezone

from conversations.domain_events import DomainEvent
from conversations.models import Conversation
from sessions_app.encryption import EncryptedTextField
from sessions_app.shared_clock import STEP_S, ahead, lasts

NAME_MAX_LENGTH = 200
BATCH_MAX_EVENTS = 500
DELIVERY_LEASE_S = 30.0
"""A process has the right to notify an endpoint of a conversation for this long after it last renewed it."""


class EndpointKind(models.TextChoices):
    """The kinds of endpoints."""

    WEBHOOK = "webhook", "webhook"
    HOOK = "hook", "hook in this server"


class EndpointQuerySet(models.QuerySet["Endpoint"]):
    def timed(self) -> Self:
        """Add `read_at`, the moment by the clock of the database."""
        return self.annotate(read_at=Now())

    def served_with(self, hook_names: Iterable[str]) -> Self:
        """Return those that a process with these hooks can notify."""
        is_served = Q(kind=EndpointKind.WEBHOOK) | Q(kind=EndpointKind.HOOK, name__in=list(hook_names))
        return self.filter(is_served, enabled=True).order_by("pk")


class Endpoint(models.Model):
    """Where the notifications of one owner's conversations, or of all, go.

    It is a webhook, or a hook of this server.
    """

    kind = models.CharField(max_length=10, choices=EndpointKind, default=EndpointKind.WEBHOOK)
    name = models.CharField(max_length=NAME_MAX_LENGTH)
    """The name of a webhook is for people; that of a hook is the place of its code."""
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
    """A buffer that is not full waits this long for more events."""
    timeout_s = models.FloatField(default=30.0, validators=[MinValueValidator(0.1), MaxValueValidator(300.0)])
    enabled = models.BooleanField(default=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="endpoints"
    )
    """The owner of the conversations; null for all users."""
    created_at = models.DateTimeField(default=timezone.now)

    begins_after = models.BigIntegerField(default=0)
    """The key of the newest event at its creation: it is notified of later ones."""
    event_position = models.BigIntegerField(default=0)
    """Its deliveries include all events with a key up to this."""
    change_position = models.BigIntegerField(default=0)
    """Its deliveries include all changes with a key up to this."""
    skipped_until = models.DateTimeField(null=True, blank=True, editable=False)
    """Changes up to this time were removed while it was disabled, before it got them."""

    read_at: datetime

    objects = models.Manager.from_queryset(EndpointQuerySet)()

    class Meta:
        verbose_name = "endpoint"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name"], name="endpoint_hook_once", condition=Q(kind=EndpointKind.HOOK)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def unheard_domain_events(self) -> list[DomainEvent]:
        """The changes of which this kind of endpoint is not notified."""
        return [DomainEvent.LOOP] if self.kind == EndpointKind.WEBHOOK else []

    def rotate(self) -> bool:
        """Seal the secrets with the newest key unless they are; return whether this changed the row.

        Raise SecretUnreadable.
        """
        if self.sealed.is_newest:
            return False
        # Only as they were read: values that are stored meanwhile have the newest key anyway.
        newest = self.sealed.resealed()
        return bool(Endpoint.objects.filter(pk=self.pk, sealed=self.sealed).update(sealed=newest))


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    def timed(self) -> Self:
        """Add `read_at`, the moment by the clock of the database."""
        return self.annotate(read_at=Now())

    def pending(self) -> Self:
        """Return those with something pending."""
        return self.filter(due_at__isnull=False)

    def failing(self) -> Self:
        """Return those whose last try failed."""
        return self.pending().filter(tries__gt=0)

    def free(self) -> Self:
        """Return those without a claim, or whose claim has run out."""
        # A claim that ends later than one can last is of a clock that was put back.
        has_run_out = Q(held_until__lte=Now()) | Q(held_until__gt=ahead(DELIVERY_LEASE_S + STEP_S))
        return self.filter(Q(held_until=None) | has_run_out)

    def due(self) -> Self:
        """Return those that may be tried now, the longest due first."""
        return self.free().filter(due_at__lte=Now()).order_by("due_at", "pk")

    def with_claim(self) -> Self:
        """Add `is_claimed`: whether a process is delivering, by the clock of the database."""
        claim = Case(When(lasts("held_until", DELIVERY_LEASE_S), then=True), default=False)
        return self.annotate(is_claimed=claim)


class Delivery(models.Model):
    """How far one endpoint has got with one conversation: a cursor, and the claim to move it."""

    # The unique constraint begins with it.
    endpoint = models.ForeignKey(Endpoint, models.CASCADE, related_name="deliveries", db_index=False)
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="deliveries")
    through = models.BigIntegerField(default=-1)
    """The seq of the newest event that the endpoint has got."""
    known = models.BigIntegerField(default=-1)
    """The seq of the newest event that is known to be for it."""
    through_change = models.BigIntegerField(default=0)
    """The key of the newest change that it has got."""
    known_change = models.BigIntegerField(default=0)
    owes_status = models.BooleanField(default=False)
    """The last event that it got ended a run, and it has not got the status since."""
    since = models.DateTimeField(default=timezone.now)
    """When the oldest pending event became known, or the last batch was delivered."""
    due_at = models.DateTimeField(null=True, blank=True)
    """When to try next; None if nothing is pending."""
    tries = models.IntegerField(default=0)
    """The number of failures in a row."""
    last_error = models.TextField(default="", blank=True)
    failed_at = models.DateTimeField(null=True, blank=True)
    delivered_at = models.DateTimeField(null=True, blank=True)

    claim = models.CharField(max_length=32, default="", blank=True)
    """The holder of the claim to move the cursor."""
    held_until = models.DateTimeField(null=True, blank=True)
    owner_host = models.TextField(default="", blank=True)
    owner_pid = models.BigIntegerField(default=0)
    owner_started = models.FloatField(default=0.0)

    is_claimed: bool
    read_at: datetime

    objects = models.Manager.from_queryset(DeliveryQuerySet)()

    class Meta:
        verbose_name_plural = "deliveries"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["endpoint", "conversation"], name="delivery_once"),
        ]
        indexes: ClassVar = [
            # Partial: a conversation keeps its delivery, and of few is anything pending.
            models.Index(
                fields=["endpoint", "due_at"], name="delivery_due", condition=Q(due_at__isnull=False)
            ),
            models.Index(fields=["held_until"], name="delivery_held", condition=Q(held_until__isnull=False)),
            models.Index(fields=["since"], name="delivery_waiting", condition=Q(due_at__isnull=False)),
            models.Index(
                fields=["since"],
                name="delivery_failing",
                condition=Q(due_at__isnull=False, tries__gt=0),
            ),
        ]

    def __str__(self) -> str:
        return f"Delivery {self.pk} through {self.through}"


class RecordedChangeQuerySet(models.QuerySet["RecordedChange"]):
    def after(self, pk: int) -> Self:
        """Return those that follow this one, in order."""
        return self.filter(pk__gt=pk).order_by("pk")

    def of(self, conversation: Conversation, endpoint: Endpoint) -> Self:
        """Return those of one conversation that are for this endpoint."""
        rows = self.filter(conversation_id=conversation.pk)
        return rows.exclude(kind__in=endpoint.unheard_domain_events)


class RecordedChange(models.Model):
    """A change of a conversation beside its log, recorded in the transaction that makes it."""

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="recorded_changes")
    kind = models.CharField(max_length=10)
    seq = models.BigIntegerField()
    """It happened after all events with a lower one."""
    recorded_at = models.DateTimeField(default=timezone.now)

    objects = models.Manager.from_queryset(RecordedChangeQuerySet)()

    def __str__(self) -> str:
        return f"{self.kind} before event {self.seq}"
