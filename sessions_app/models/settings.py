"""Users' settings and secrets."""

from __future__ import annotations

from typing import ClassVar, Self

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from sessions_app.encryption import EncryptedTextField

CONDENSER_SIZE_MIN = 20
RUN_TOOL_PROGRAMS = "sessions_app.run_tool_programs"
"""The permission to have tool servers that are programs of this machine, where there are accounts."""


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
    # For models, in all conversations of the user.
    instructions = models.TextField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "user settings"
        permissions: ClassVar = [
            ("run_tool_programs", "Can have tool servers that are programs on this server"),
        ]
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

    # The unique constraint begins with it, here and below.
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

        Raise SecretUnreadable.
        """
        while not self.value.is_newest:
            # Only as it was read: a value that is stored meanwhile is re-encrypted, not overwritten.
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


class DocumentKind(models.TextChoices):
    """The kind of a document that a client keeps here."""

    SETTINGS = "settings"
    """What V1 clients set beyond the columns of UserSettings; there is one, without a name."""
    MODEL_PROFILE = "model_profile"
    """A server of models with its key, and the model that V1 clients use there, under the user's name."""
    AGENT_PROFILE = "agent_profile"
    """An agent's configuration, under the name that the user gave it."""
    MODEL_NOTES = "model_notes"
    """The user's favourite models, and the prices that they entered; there is one, without a name."""


class UserDocument(models.Model):
    """A JSON document of a user that clients read back as they stored it."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="documents", db_index=False
    )
    kind = models.CharField(max_length=20, choices=DocumentKind)
    name = models.CharField(max_length=64, blank=True)
    # Whole, since clients may put keys anywhere into it.
    sealed = EncryptedTextField(editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "kind", "name"], name="user_document_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()

    def rotate(self) -> bool:
        """Encrypt the document with the newest key unless it is; return whether this changed the row.

        Raise SecretUnreadable.
        """
        if self.sealed.is_newest:
            return False
        # Only as it was read: what is stored meanwhile has the newest key anyway.
        newest = self.sealed.resealed()
        return bool(UserDocument.objects.filter(pk=self.pk, sealed=self.sealed).update(sealed=newest))
