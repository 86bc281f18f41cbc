"""The answers to requests that created something, kept for repeated requests."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar, Self

from django.conf import settings
from django.db import models
from django.utils import timezone

from sessions_app.encryption import EncryptedTextField

KEPT_S = 24 * 60 * 60
KEY_MAX_LENGTH = 200


class RecordedAnswerQuerySet(models.QuerySet["RecordedAnswer"]):
    def to(self, user_id: int, route: str, key: str) -> Self:
        """Return the answer to a user's request under this key, if there is one."""
        return self.filter(user_id=user_id, route=route, key=key)

    def kept(self, now: datetime) -> Self:
        """Return those that a repeated request still gets."""
        return self.filter(created_at__gt=now - timedelta(seconds=KEPT_S))

    def expired(self, now: datetime) -> Self:
        """Return the expired ones."""
        return self.filter(created_at__lte=now - timedelta(seconds=KEPT_S))


class RecordedAnswer(models.Model):
    """The answer to one request with an idempotency key, stored with what the request created."""

    # The unique constraint begins with it.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False)
    route = models.TextField()
    """The address; a key is valid for one address."""
    key = models.CharField(max_length=KEY_MAX_LENGTH)
    sealed = EncryptedTextField(editable=False)
    """JSON: the digest of the request's body, and the status and the body of the answer."""
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = models.Manager.from_queryset(RecordedAnswerQuerySet)()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "key", "route"], name="recorded_answer_once"),
        ]

    def __str__(self) -> str:
        return f"answer at {self.route} to user {self.user_id}"

    def rotate(self) -> bool:
        """Seal the answer with the newest key; return whether that was necessary. Raise SecretUnreadable."""
        if self.sealed.is_newest:
            return False
        # Only as it was read: a request may have recorded its answer meanwhile.
        rows = RecordedAnswer.objects.filter(pk=self.pk, sealed=self.sealed)
        return bool(rows.update(sealed=self.sealed.resealed()))
