"""What gives access and can be taken away: API tokens, keys of conversations, and when a user lost any."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Self

from django.conf import settings
from django.db import models, transaction
from django.db.models import F, Q
from django.utils import timezone
from django.utils.text import get_text_list

from conversations import live, opaque
from conversations.log.locks import unless_locked
from conversations.models import Conversation, ConversationRef
from conversations.server_log import log_on_commit

TOKEN_PREFIX = "cs_"  # noqa: S105 - a mark, not a password
TOKEN_NAME_MAX_LENGTH = 100
TOKEN_IDS = "id of a token"  # noqa: S105 - a purpose, not a password
# Not each use: reading must not mean writing, or waiting.
TOKEN_USE_RECORDED_S = 60

ACCESS_GROUP = "access"
"""The hint group by which every process hears that a user's access was reduced."""


def announce_removal(user_id: int) -> None:
    """Tell the open sockets of this user, in every process, to check their credentials."""
    live.announce(ACCESS_GROUP, {"kind": "access", "user": user_id})


class AccessRemoval(models.Model):
    """When a user's access was last reduced, and how often the keys of their conversations were rotated.

    Whatever ends an access notes it here: a revoked token, a changed password, a logout, a deactivated user,
    a rotated key. Open sockets then check their credentials before they take anything more (`access_watch`).
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="access_removal"
    )
    removed_at = models.DateTimeField(default=timezone.now)
    key_rotation = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"access of user {self.user_id}, reduced at {self.removed_at}"

    @staticmethod
    def note(user_id: int, *, rotates_keys: bool = False) -> None:
        """Store that access to what is this user's was reduced, and announce it once it is committed.

        `rotates_keys`: the keys of all of the user's conversations open nothing from now on.
        """
        with transaction.atomic():
            AccessRemoval.objects.bulk_create([AccessRemoval(user_id=user_id)], ignore_conflicts=True)
            # Added by the database, so that two rotations at the same time both count.
            rotation = F("key_rotation") + int(rotates_keys)
            AccessRemoval.objects.filter(pk=user_id).update(removed_at=timezone.now(), key_rotation=rotation)
            transaction.on_commit(lambda: announce_removal(user_id), robust=True)


class Scope(models.TextChoices):
    """What a token lets its holder do."""

    READ = "read", "Read"
    WRITE = "write", "Write"
    RUN = "run", "Run"
    ADMIN = "admin", "Administer"


_RIGHTS = {
    Scope.READ: "read",
    Scope.WRITE: "write",
    Scope.RUN: "talk to the agent",
    Scope.ADMIN: "change settings, secrets and tokens",
}
ALL_SCOPES = " ".join(Scope.values)
ACCESS = {
    ALL_SCOPES: "Full access",
    "read write run": "Read, write and talk to the agent",
    "read run": "Read and talk to the agent",
    "read": "Read only",
}
"""The sets of scopes that are offered to people, and what they are called wherever one is shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """What a new token opens, and until when."""

    scopes: Collection[Scope] = tuple(Scope)
    expires_at: datetime | None = None
    conversation: ConversationRef | None = None
    """The only conversation; None for all of the user's."""


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def valid(self) -> Self:
        """Return the valid tokens: neither revoked nor expired, of active users."""
        is_current = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
        return self.filter(is_current, revoked_at__isnull=True, user__is_active=True)

    def lapsed(self) -> Self:
        """Return those that have expired since they were last looked for (`end_lapsed`)."""
        return self.filter(expires_at__lte=timezone.now(), revoked_at__isnull=True)

    def matching(self, text: str) -> Self:
        """Return the token that was issued as `text`."""
        return self.filter(digest=token_digest(text))

    def called(self, public_id: str) -> Self:
        """Return the token that its user is shown by this id."""
        try:
            return self.filter(pk=int(opaque.reveal(public_id, TOKEN_IDS)))
        except opaque.NotOpaque:
            return self.none()

    def end_lapsed(self) -> None:
        """Revoke what has expired, as of then."""
        # Revoked, not only refused: keys of conversations that its holder was shown end with it.
        for token in list(self.lapsed()):
            with transaction.atomic():  # a revoked token is not looked for again
                # Again by `lapsed`: of several processes, one notes the end.
                if ApiToken.objects.lapsed().filter(pk=token.pk).update(revoked_at=F("expires_at")):
                    log_on_commit("Token expired", token=token.pk, user=token.user_id)
                    token.note_end()


def token_digest(text: str) -> str:
    """Return the stored digest of a token."""
    # No slow hash, as for a password: 256 random bits cannot be guessed.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class ApiToken(models.Model):
    """A key for a user's conversations; only its digest is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=TOKEN_NAME_MAX_LENGTH)
    prefix = models.CharField(max_length=12)
    """The token's beginning, by which people recognise it."""
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.CharField(max_length=50, default=ALL_SCOPES)
    """The scopes, separated by spaces."""
    conversation = models.ForeignKey(Conversation, models.CASCADE, null=True, blank=True, related_name="+")
    """The one conversation that it opens; None for all of the user's."""
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = models.Manager.from_queryset(ApiTokenQuerySet)()

    class Meta:
        verbose_name = "API token"
        indexes: ClassVar = [
            # Each poll looks for lapsed tokens.
            models.Index(
                fields=["expires_at"],
                name="token_expiry",
                condition=Q(expires_at__isnull=False, revoked_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def public_id(self) -> str:
        """The id that its user is shown."""
        # Concealed: a key tells how many tokens there are.
        return opaque.conceal(str(self.pk), TOKEN_IDS)

    @classmethod
    def issue(
        cls,
        user_id: int,
        name: str,
        grant: Grant | None = None,
    ) -> tuple[ApiToken, str]:
        """Create a token; return its row and its text, which cannot be shown again."""
        text = TOKEN_PREFIX + secrets.token_urlsafe(32)
        grant = grant or Grant()
        row = cls.objects.create(
            user_id=user_id,
            name=name,
            prefix=text[:8],
            digest=token_digest(text),
            scopes=" ".join(scope for scope in Scope if scope in grant.scopes),
            expires_at=grant.expires_at,
            conversation_id=grant.conversation.pk if grant.conversation else None,
        )
        log_on_commit("Token created", token=row.pk, user=user_id)
        return row, text

    @property
    def scope_set(self) -> frozenset[Scope]:
        return frozenset(scope for scope in Scope if scope in self.scopes.split())

    @property
    def is_whole(self) -> bool:
        """Return whether it opens what a login opens."""
        # Only then is it shown keys of conversations, and they end with it (`note_end`).
        return self.conversation_id is None and self.scope_set == frozenset(Scope)

    @property
    def rights(self) -> str:
        """What it lets its holder do, in words, without the conversation that it is for."""
        rights = get_text_list([_RIGHTS[scope] for scope in Scope if scope in self.scope_set], "and")
        return ACCESS.get(self.scopes) or rights.capitalize()

    @property
    def has_expired(self) -> bool:
        # One that was revoked earlier has not expired.
        return self.expires_at is not None and self.expires_at <= (self.revoked_at or timezone.now())

    def record_use(self) -> None:
        """Record its use, at most once every TOKEN_USE_RECORDED_S."""
        now = timezone.now()
        fresh = now - timedelta(seconds=TOKEN_USE_RECORDED_S)
        if self.last_used_at is None or self.last_used_at < fresh:
            with unless_locked():
                ApiToken.objects.filter(pk=self.pk).update(last_used_at=now)

    @transaction.atomic
    def revoke(self) -> None:
        """Revoke the token, and rotate the keys of conversations that its holder may have read."""
        self.revoked_at = timezone.now()
        self.save(update_fields=["revoked_at"])
        log_on_commit("Token revoked", token=self.pk, user=self.user_id)
        self.note_end()

    def note_end(self) -> None:
        """Announce that it opens nothing, and rotate the keys of conversations that it was shown."""
        AccessRemoval.note(self.user_id, rotates_keys=self.is_whole)


class ConversationKey(models.Model):
    """What is stored of a conversation's key, which is derived; without a row it was never used."""

    conversation = models.OneToOneField(
        Conversation, models.CASCADE, primary_key=True, related_name="access_key"
    )
    rotation = models.IntegerField(default=0)
    """How often it was made anew."""
    issued_on = models.IntegerField(null=True, blank=True)
    """The day, counted from 1970, from which the keys in use are; earlier ones have expired."""
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"key of {self.conversation_id}"
