"""How the agent of one conversation runs, as far as its user has chosen that for this conversation."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from conversations.models import Conversation, ConversationRef

AGENT_NAME_MAX_LENGTH = 200
OPTION_MODEL_MAX_LENGTH = 200


class ReasoningEffort(models.TextChoices):
    """How long a model thinks before it answers."""

    LOW = "low", "low"
    MEDIUM = "medium", "medium"
    HIGH = "high", "high"


class WhileWorking(models.TextChoices):
    """What becomes of a message that arrives while the agent works."""

    QUEUE = "queue", "answer it after the turn"
    STEER = "steer", "show it to the agent before its next step"
    INTERRUPT = "interrupt", "stop the turn and answer it"
    REJECT = "reject", "refuse it"


class UnknownOutcome(models.TextChoices):
    """What is done about a tool call that had started when the server stopped."""

    ASK = "ask", "ask the user"
    TELL = "tell", "tell the model"


def _limit(help_text: str) -> Any:
    return models.BigIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)], help_text=help_text
    )


def _cost(help_text: str) -> Any:
    return models.FloatField(null=True, blank=True, validators=[MinValueValidator(0)], help_text=help_text)


class RunOptionsQuerySet(models.QuerySet["RunOptions"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return the row of one conversation, if it has one."""
        return self.filter(conversation_id=conversation.pk)

    def below(self, conversation: ConversationRef, *, agent: str) -> Self:
        """Return the rows of standing conversations that were started from one for an agent, newest first."""
        rows = self.filter(
            conversation__parent_id=conversation.pk, conversation__deleted_at=None, agent=agent
        )
        rows = rows.filter(conversation__owner_id=conversation.owner_id)
        return rows.select_related("conversation").order_by("-conversation_id")


class RunOptions(models.Model):
    """The options of one conversation; an empty text and null leave the default, as a missing row does."""

    conversation = models.OneToOneField(
        Conversation, models.CASCADE, primary_key=True, related_name="run_options"
    )
    agent = models.CharField(max_length=AGENT_NAME_MAX_LENGTH, blank=True, default="")
    """The name of an agent of this server."""
    model = models.CharField(max_length=OPTION_MODEL_MAX_LENGTH, blank=True, default="")
    """The name of a model: as in the settings or, with a provider, as the provider lists it."""
    provider = models.CharField(max_length=64, blank=True, default="", db_default="")
    """The name of the owner's provider that has the model; empty for the server of the settings."""
    reasoning_effort = models.CharField(
        max_length=20, choices=ReasoningEffort, blank=True, default="", db_default=""
    )
    temperature = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0), MaxValueValidator(2)],
        help_text="How freely a model chooses its words; empty for its own default.",
    )
    for_next_message = models.JSONField(null=True, blank=True, editable=False)
    """The model of the next message only, with `after`, the end of the log when it was chosen."""
    while_working = models.CharField(max_length=20, choices=WhileWorking, blank=True, default="")
    unknown_outcome = models.CharField(max_length=20, choices=UnknownOutcome, blank=True, default="")
    max_turn_iterations = _limit("How often a model is asked in one turn.")
    max_iterations = _limit("How often a model is asked in the conversation.")
    max_turn_tokens = _limit("Tokens that the models of one turn use.")
    max_tokens = _limit("Tokens that the models of the conversation use.")
    max_turn_cost = _cost("US dollars that the models of one turn cost.")
    max_cost = _cost("US dollars that the models of the conversation cost.")
    max_turn_seconds = _limit("Seconds for which the agent works in one turn.")
    max_seconds = _limit("Seconds for which the agent works in the conversation.")
    network = models.BooleanField(
        null=True,
        blank=True,
        help_text="Whether programs in the sandbox reach public servers; empty for the default.",
    )

    # A model gets them after those of the user's settings.
    instructions = models.TextField(blank=True, default="", db_default="")
    INSTRUCTIONS_MAX_LENGTH: ClassVar = 20_000

    objects = models.Manager.from_queryset(RunOptionsQuerySet)()

    class Meta:
        verbose_name = "run options"
        verbose_name_plural = "run options"
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(while_working__in=["", *WhileWorking.values]), name="run_options_while_working"
            ),
            models.CheckConstraint(
                condition=Q(unknown_outcome__in=["", *UnknownOutcome.values]),
                name="run_options_unknown_outcome",
            ),
        ]

    def __str__(self) -> str:
        return f"run options of {self.conversation_id}"
