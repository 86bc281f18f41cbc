"""Logins of programs that a person approves in a browser (RFC 8628), until they end."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.crypto import salted_hmac

from sessions_app.models.access import TOKEN_NAME_MAX_LENGTH

LIFETIME_S = 600
INTERVAL_S = 5
PROGRAM_MAX_LENGTH = 200
ADDRESS_MAX_LENGTH = 100
# An ended login is kept, so that its program learns how it ended.
KEPT_S = 3600


class DeviceLoginState(models.TextChoices):
    """What became of a program's login."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    USED = "used"


class DeviceLoginQuerySet(models.QuerySet["DeviceLogin"]):
    def current(self) -> Self:
        """Return the logins that have not expired."""
        return self.filter(expires_at__gt=timezone.now())

    def waiting(self) -> Self:
        """Return the logins that wait for a person or for their program."""
        return self.current().filter(state__in=(DeviceLoginState.PENDING, DeviceLoginState.APPROVED))

    def pending(self) -> Self:
        """Return the logins that a person can still approve or deny."""
        return self.current().filter(state=DeviceLoginState.PENDING)

    def of_client(self, client: str) -> Self:
        """Return the logins that one subscriber has begun."""
        return self.filter(client=client)

    def of_device(self, code: str) -> Self:
        """Return the login with this device code."""
        return self.filter(device_digest=code_digest(code))

    def of_user_code(self, code: str) -> Self:
        """Return the login with this user code, in its normal form."""
        return self.filter(user_digest=code_digest(code))

    def shown_to(self, user_pk: int) -> Self:
        """Return the logins that a user can answer, or has approved."""
        is_own = Q(user_id=user_pk, state__in=(DeviceLoginState.APPROVED, DeviceLoginState.USED))
        return self.current().filter(is_own | Q(state=DeviceLoginState.PENDING))

    def ended(self) -> Self:
        """Return the logins that need not be kept any longer."""
        return self.filter(expires_at__lte=timezone.now() - timedelta(seconds=KEPT_S))


def code_digest(code: str) -> str:
    """Return the stored digest of a code."""
    # Keyed, since a user code has only 34 bits: a copy of the table must not give it away.
    return salted_hmac("sessions_app.device_logins", code, algorithm="sha256").hexdigest()


class DeviceLogin(models.Model):
    """One login of a program; its codes are stored as digests only."""

    device_digest = models.CharField(max_length=64, unique=True)
    user_digest = models.CharField(max_length=64, unique=True)
    address = models.CharField(max_length=ADDRESS_MAX_LENGTH, blank=True)
    """The address that the program asked from, for the person who answers."""
    client = models.CharField(max_length=ADDRESS_MAX_LENGTH, blank=True)
    """The subscriber who has that address, by which logins are counted."""
    program = models.CharField(max_length=PROGRAM_MAX_LENGTH, blank=True)
    """What the program calls itself."""
    state = models.CharField(
        max_length=10, choices=DeviceLoginState.choices, default=DeviceLoginState.PENDING
    )
    interval_s = models.PositiveSmallIntegerField(default=INTERVAL_S)
    polled_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="device_logins"
    )
    """The user who approved or denied it."""
    token_name = models.CharField(max_length=TOKEN_NAME_MAX_LENGTH, blank=True)
    token_scopes = models.CharField(max_length=50, blank=True)
    token_expires_at = models.DateTimeField(null=True, blank=True)

    objects = models.Manager.from_queryset(DeviceLoginQuerySet)()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["client"], name="device_login_client")]

    def __str__(self) -> str:
        return f"login of a program at {self.address}"

    @property
    def is_pending(self) -> bool:
        return self.state == DeviceLoginState.PENDING
