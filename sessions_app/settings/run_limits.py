"""The limits of one conversation's agent, from its options, its owner's settings and the operator."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from django.conf import settings

from conversations.models import Conversation, ConversationRef
from sessions_app.models import MAX_ITERATIONS, NANOS, Amounts

# The generations that are examined; each is a query at every turn and call of a model.
FAMILY_MAX = 20


class Unit(StrEnum):
    """The unit of a limit."""

    ITERATIONS = "iterations"
    TOKENS = "tokens"
    COST = "cost"
    SECONDS = "seconds"


class Origin(StrEnum):
    """The source of a limit."""

    OPTION = "option"
    """The user, for this conversation."""
    START = "start"
    """The request that started the conversation."""
    SETTINGS = "settings"
    """The owner, for all conversations."""
    DEFAULT = "default"
    """No setting: the default."""
    OPERATOR = "operator"
    """The server's operator, for all users."""


def used_of(unit: Unit, amounts: Amounts) -> float:
    """Return the used calls, tokens, US dollars or seconds."""
    match unit:
        case Unit.ITERATIONS:
            return amounts.iterations
        case Unit.TOKENS:
            return amounts.tokens
        case Unit.COST:
            return amounts.cost_nanos / NANOS
        case Unit.SECONDS:
            return amounts.worked_ms / 1000


class Limit(NamedTuple):
    """One limit."""

    unit: Unit
    is_of_turn: bool
    """Whether it counts for each turn, or for all together."""
    most: float
    """Calls, tokens, US dollars or seconds."""
    origin: Origin

    def used_of(self, amounts: Amounts) -> float:
        """Return the usage, in the unit of `most`."""
        return used_of(self.unit, amounts)

    def is_reached(self, amounts: Amounts) -> bool:
        return self.used_of(amounts) >= self.most


class RunLimits(NamedTuple):
    """The limits of one conversation's agent."""

    conversation_pk: int
    limits: Mapping[str, Limit]
    """By the names of the options, without `max_`."""
    parent_pk: int | None = None
    """The conversation of the same owner that has started this one."""

    def of_turn(self) -> list[Limit]:
        return [limit for limit in self.limits.values() if limit.is_of_turn]

    def of_conversation(self) -> list[Limit]:
        return [limit for limit in self.limits.values() if not limit.is_of_turn]

    def has(self, unit: Unit) -> bool:
        return any(limit.unit is unit for limit in self.limits.values())


NAMES: Final = tuple(f"{scope}{unit}" for unit in Unit for scope in ("turn_", ""))
"""The limits, as `RunLimits.limits` names them."""
_ROW = (
    *("owner_id", "parent_id", "parent__owner_id"),
    *(f"run_options__max_{name}" for name in NAMES),
    "agent_setup__max_iterations",
    *("owner__user_settings__max_iterations", "owner__user_settings__max_budget_per_task"),
)


def limits_of(conversation_pk: int) -> RunLimits | None:
    """Return the limits of a conversation, by one query; None if it is gone."""
    row = Conversation.objects.filter(pk=conversation_pk).values(*_ROW).first()
    if row is None:
        return None
    found = {name: limit for name in NAMES if (limit := _limit(name, row)) is not None}
    # A conversation of another owner pays for nothing of this one's.
    is_own = row["parent_id"] is not None and row["parent__owner_id"] == row["owner_id"]
    return RunLimits(conversation_pk, found, parent_pk=row["parent_id"] if is_own else None)


def family_limits(conversation: ConversationRef) -> list[RunLimits]:
    """Return the limits of a conversation and, after it, of those that have started it, one query each."""
    found: list[RunLimits] = []
    pk: int | None = conversation.pk
    while pk is not None and len(found) < FAMILY_MAX and (limits := limits_of(pk)) is not None:
        found.append(limits)
        pk = limits.parent_pk
    return found or [RunLimits(conversation.pk, {})]


def _limit(name: str, row: Mapping[str, Any]) -> Limit | None:
    """Return one limit: the most specific setting, bounded by the operator's."""
    unit = Unit(name.removeprefix("turn_"))
    most, origin = _wanted(name, row)
    bound = float(getattr(settings.CONFIGURATION.run_limits, name))
    if bound and (most is None or bound <= most):
        most, origin = bound, Origin.OPERATOR
    return None if most is None else Limit(unit, name.startswith("turn_"), float(most), origin)


def _wanted(name: str, row: Mapping[str, Any]) -> tuple[float | None, Origin]:
    if (option := row[f"run_options__max_{name}"]) is not None:
        return option, Origin.OPTION
    if name == "turn_iterations":
        started = row["agent_setup__max_iterations"]
        if started is not None and started != MAX_ITERATIONS:  # a start that names none has the default
            return started, Origin.START
        own = row["owner__user_settings__max_iterations"]
        return (own, Origin.SETTINGS) if own is not None and own > 0 else (MAX_ITERATIONS, Origin.DEFAULT)
    own = row["owner__user_settings__max_budget_per_task"]
    if name == "cost" and own is not None and own > 0:
        return own, Origin.SETTINGS
    return None, Origin.DEFAULT
