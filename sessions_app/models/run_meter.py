"""What the agent of one conversation has used of its limits, and what its calls of models have reserved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from conversations.models import Conversation, ConversationRef


class Amounts(NamedTuple):
    """What was used of the four things that have limits."""

    iterations: int = 0
    """How often a model was asked for a turn."""
    tokens: int = 0
    cost_nanos: int = 0
    """Of the calls whose price is known."""
    worked_ms: int = 0

    def plus(self, other: Amounts) -> Amounts:
        """Return the sums."""
        return Amounts(*(mine + added for mine, added in zip(self, other, strict=True)))


class RunMeterQuerySet(models.QuerySet["RunMeter"]):
    def of(self, conversation: ConversationRef) -> Self:
        """Return the row of one conversation, if it has one."""
        return self.filter(conversation_id=conversation.pk)

    def of_family(self, top: int, *, besides: Sequence[int] = ()) -> Self:
        """Return those of a conversation and all that it has started, and `besides`, with who runs."""
        # A long line of conversations is more than one family, hence `besides`.
        rows = self.filter(Q(family=top) | Q(pk__in=besides)) if besides else self.filter(family=top)
        return rows.select_related("conversation").only(*_READ).annotate(read_at=Now()).order_by("pk")

    def locked(self) -> Self:
        """Return the rows, locked until the transaction ends."""
        # In an order that all keep, and as the last locks of a transaction, so that none wait for each other.
        return self.order_by("pk").select_for_update(no_key=True, of=("self",))


class RunMeter(models.Model):
    """What one conversation's agent has used, without those of the conversations that it has started.

    Nothing else than the reservations of calls and the ends of turns writes here (`agents/metering`).
    """

    conversation = models.OneToOneField(
        Conversation, models.CASCADE, primary_key=True, related_name="run_meter"
    )
    family = models.BigIntegerField(db_index=True)
    """The key of the topmost conversation of those that have started this one, or its own."""
    iterations = models.BigIntegerField(default=0)
    tokens = models.BigIntegerField(default=0)
    cost_nanos = models.BigIntegerField(default=0)
    worked_ms = models.BigIntegerField(default=0)
    turn_id = models.TextField(default="", blank=True)
    """The turn of which the next four are."""
    turn_iterations = models.BigIntegerField(default=0)
    turn_tokens = models.BigIntegerField(default=0)
    turn_cost_nanos = models.BigIntegerField(default=0)
    turn_worked_ms = models.BigIntegerField(default=0)
    is_spent = models.BooleanField(default=False)
    """Whether the turn has paused at a limit of its own: once it is resumed, it counts anew."""
    # A reservation is void under a newer epoch of its loop, which each entry names.
    running: models.JSONField[dict[str, dict[str, Any]]] = models.JSONField(default=dict, blank=True)
    """The calls that are being made, by their place: `loop` for the turn's, an id for others."""
    unpriced_told: models.JSONField[list[str]] = models.JSONField(default=list, blank=True)
    """The models of which the user was told that their price is unknown."""

    read_at: datetime
    """The moment by the clock of the database, where `of_family` has read it."""

    objects = models.Manager.from_queryset(RunMeterQuerySet)()

    class Meta:
        verbose_name = "run meter"

    def __str__(self) -> str:
        return f"run meter of {self.conversation_id}"

    @property
    def used(self) -> Amounts:
        return Amounts(self.iterations, self.tokens, self.cost_nanos, self.worked_ms)

    @property
    def used_by_turn(self) -> Amounts:
        return Amounts(self.turn_iterations, self.turn_tokens, self.turn_cost_nanos, self.turn_worked_ms)

    def begin_turn(self, turn_id: str, *, goes_on: bool) -> None:
        """Count anew for another turn, or for one that goes on after a pause at its limit."""
        if self.turn_id != turn_id or (goes_on and self.is_spent):
            self.turn_id, self.is_spent = turn_id, False
            self._set_turn(Amounts())

    def add(self, amounts: Amounts, *, to_turn: bool) -> None:
        """Count more."""
        for name, amount in zip(Amounts._fields, amounts, strict=True):
            setattr(self, name, getattr(self, name) + amount)
        if to_turn:
            self._set_turn(self.used_by_turn.plus(amounts))

    def _set_turn(self, amounts: Amounts) -> None:
        for name, amount in zip(Amounts._fields, amounts, strict=True):
            setattr(self, f"turn_{name}", amount)


_OWN = tuple(field.attname for field in RunMeter._meta.concrete_fields)
_READ = (*_OWN, "conversation__parent_id", "conversation__loop_epoch")
COUNTED = tuple(name for name in _OWN if name not in ("conversation_id", "family"))
"""The columns that a change may touch."""
