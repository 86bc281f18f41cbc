"""What the V1 wire keeps of a conversation beside its log: how its agent is set up, how it was started."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import add
from typing import Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Coalesce, Length
from django.utils import timezone

from conversations.models import Conversation, ConversationRef, new_public_id
from sessions_app.encryption import EncryptedTextField, Sealed, seal

MAX_ITERATIONS = 500
DEFAULT_WORKING_DIR = "workspace/project"


def default_workspace() -> dict[str, Any]:
    """Return the workspace of a conversation that was created without one."""
    return {"kind": "LocalWorkspace", "working_dir": DEFAULT_WORKING_DIR}


def never_confirm() -> dict[str, Any]:
    """Return the policy under which the agent asks for nothing."""
    return {"kind": "NeverConfirm"}


def json_size(*columns: str) -> Combinable:
    """Return the length of JSON columns together."""
    # By the database, so that a list can be bounded before it is read.
    sizes = [Coalesce(Length(Cast(column, models.TextField())), 0) for column in columns]
    return reduce(add, sizes)


def sealed_nothing() -> Sealed:
    """Return an empty list as it is stored."""
    return seal("[]")


DEFAULT_MODEL = "default"


class AgentSetup(models.Model):
    """How a V1 conversation's agent is to run (spec V1 §2.2); without a row it is as the defaults say."""

    conversation = models.OneToOneField(
        Conversation, models.CASCADE, primary_key=True, related_name="agent_setup"
    )
    # Twice, sealed and shown: a list of conversations decrypts nothing.
    sealed_agent = EncryptedTextField(editable=False)
    """JSON: the agent as it was sent, with its keys; `null` for none."""
    shown_agent = models.JSONField(null=True, blank=True)
    """The same as it is printed: every key masked."""
    sealed_secrets = EncryptedTextField(editable=False)
    """JSON: secret sources by name, with their values."""
    sealed_keys = EncryptedTextField(default=sealed_nothing, editable=False)
    """JSON: a list of the keys in the setup, which events must not show."""
    # Every append looks for the values of these, and most setups have none.
    has_secrets = models.BooleanField(default=False)
    """Whether there is any secret or key."""
    shown_secrets = models.JSONField(default=dict, blank=True)
    workspace = models.JSONField(default=default_workspace)
    confirmation_policy = models.JSONField(default=never_confirm)
    security_analyzer = models.JSONField(null=True, blank=True)
    max_iterations = models.IntegerField(default=MAX_ITERATIONS)
    stuck_detection = models.BooleanField(default=True)
    facts = models.JSONField(default=dict, blank=True)
    """What else a client sent at the start that is printed again."""
    leaf_event_id = models.TextField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [
            # So that an append to a conversation without secrets of its own reads no row of this table.
            models.Index(fields=["conversation"], name="agent_setup_secrets", condition=Q(has_secrets=True)),
        ]

    def __str__(self) -> str:
        return f"agent setup of {self.conversation_id}"


class StartTaskQuerySet(models.QuerySet["StartTask"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return those that started this conversation."""
        return self.filter(conversation_id=conversation.pk)

    def of_user(self, user_id: int) -> Self:
        """Return those that this user asked for."""
        return self.filter(user_id=user_id)

    def of_public_id(self, public_id: str) -> Self:
        """Return those that started the conversation with this normal id."""
        return self.filter(conversation__public_id=public_id)

    def with_task_ids(self, task_ids: Iterable[str]) -> Self:
        """Return those with one of these ids."""
        return self.filter(task_id__in=list(task_ids))

    def asked_from(self, moment: datetime) -> Self:
        """Return those that were asked for at this moment or later."""
        return self.filter(created_at__gte=moment)

    def in_order(self, *, newest_first: bool) -> Self:
        """Order by when they were asked for."""
        return self.order_by(*(["-created_at", "-pk"] if newest_first else ["created_at", "pk"]))

    def beyond(self, created_at: datetime, pk: int, *, newest_first: bool) -> Self:
        """Return those that follow this place in that order."""
        side = "lt" if newest_first else "gt"
        further = Q(**{f"created_at__{side}": created_at}) | Q(created_at=created_at, **{f"pk__{side}": pk})
        return self.filter(further).filter(**{f"created_at__{side}e": created_at})  # for the index


class StartTask(models.Model):
    """One request to start a conversation over the app face (spec V1 §1.1), stored with what it made."""

    task_id = models.CharField(max_length=32, unique=True, default=new_public_id)
    # The index of the list begins with it.
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False)
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, null=True, blank=True, related_name="start_tasks"
    )
    status = models.CharField(max_length=30)
    detail = models.TextField(null=True, blank=True)
    request = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = models.Manager.from_queryset(StartTaskQuerySet)()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["user", "-created_at", "-id"], name="start_task_list"),
        ]

    def __str__(self) -> str:
        return f"start {self.task_id}: {self.status}"
