"""Reservations: the expected usage of a call is taken from the limits before the model is called.

The topmost row of a conversation's family is locked first, then the rows of all its conversations, and the
conversation's own is written. So concurrent calls of all processes see each other: together they exceed a
limit by at most one call of each loop. Nothing is locked after these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction

from conversations.events import ConversationRef
from sessions_app.agents.base import CallUsage
from sessions_app.models import NANOS, Amounts, ModelUse, RunMeter
from sessions_app.models.run_meter import COUNTED
from sessions_app.settings import run_limits
from sessions_app.settings.run_limits import Limit, RunLimits, Unit
from sessions_app.shared_clock import STEP_S

LOOP = "loop"
"""The key in `running` of the turn's call: one at a time."""
# A call outside turns has no epoch that could tell whether its process is gone; by then it has ended.
BESIDE_S = 120.0


class Reached(NamedTuple):
    """A limit of which nothing is left, and what was used of it."""

    limit: Limit
    used: Amounts
    is_ancestors: bool = False
    """Whether a conversation that has started this one has the limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnShare:
    """The usage of a turn since the last count."""

    turn_id: str
    epoch: int
    call_id: str
    """The call to reserve, or the last one that was reserved; empty before the first."""
    ended: Amounts
    is_first: bool
    """Whether the turn has just begun, or continues after a pause."""
    asks: bool
    """Whether the turn pauses at a limit until the user resumes it."""


def used_so_far(meter: RunMeter | None, limit: Limit, turn_id: str) -> Amounts:
    """Return the usage of a conversation, or of its turn that begins or continues now."""
    if meter is None:
        return Amounts()
    if not limit.is_of_turn:
        return meter.used
    return Amounts() if meter.is_spent or meter.turn_id != turn_id else meter.used_by_turn


def amounts_of(usage: CallUsage, *, is_of_turn: bool = True) -> Amounts:
    """Return the usage of a call as amounts."""
    tokens = usage.prompt_tokens + usage.completion_tokens
    return Amounts(int(is_of_turn), tokens, round((usage.cost or 0.0) * NANOS))


@transaction.atomic
def reserve(
    conversation: ConversationRef,
    family: Sequence[RunLimits],
    share: TurnShare,
    expected: Amounts,
    *,
    unpriced: str = "",
) -> tuple[Reached | None, bool]:
    """Count what a turn has used, and reserve a call with its expected usage.

    Return the limit that is reached, in which case nothing is reserved, and whether to tell the user that
    the price of the model `unpriced` is unknown. A repetition with the same call changes nothing.
    """
    rows = _locked(family)
    own = rows[conversation.pk]
    # Equal if the commit of this reservation was lost, and it is repeated.
    if own.running.get(LOOP, {}).get("id") != share.call_id:
        _count(own, share)
    reached = _reached(family, rows, own.used_by_turn, besides=LOOP)
    own.is_spent = reached is not None and reached.limit.is_of_turn and share.asks
    # Also at a limit, with nothing: the id tells a repetition that the share is counted.
    taken = Amounts() if reached else expected
    own.running[LOOP] = _call(taken, id=share.call_id, epoch=share.epoch)
    has_cost_limit = any(limits.has(Unit.COST) for limits in family)
    tells = bool(not reached and unpriced and unpriced not in own.unpriced_told and has_cost_limit)
    if tells:
        own.unpriced_told.append(unpriced)
    own.save(update_fields=COUNTED)
    return reached, tells


@transaction.atomic
def settle(
    conversation: ConversationRef, family: Sequence[RunLimits], share: TurnShare, *, is_spent: bool = False
) -> None:
    """Count the usage of a turn that has ended or waits, and remove its reservation."""
    own = _locked(family)[conversation.pk]
    # Another id is that of a later loop, which has counted this turn's reservation as used.
    if own.running.get(LOOP, {}).get("id", "") == share.call_id:
        _count(own, share)
        own.is_spent = own.is_spent or is_spent
        own.running.pop(LOOP, None)
        own.save(update_fields=COUNTED)


@transaction.atomic
def reserve_beside(
    conversation: ConversationRef, family: Sequence[RunLimits], call_id: str, expected: Amounts
) -> Reached | None:
    """Reserve a call outside turns. Return the limit that is reached, if one is."""
    rows = _locked(family)
    own = rows[conversation.pk]
    _drop_dead(own, own.conversation.loop_epoch)
    reached = _reached(family, rows, None, besides=call_id)
    if reached is None:
        own.running[call_id] = _call(expected, until=own.read_at.timestamp() + BESIDE_S)
        own.save(update_fields=COUNTED)
    return reached


@transaction.atomic
def settle_beside(
    conversation: ConversationRef, family: Sequence[RunLimits], call_id: str, used: Amounts
) -> None:
    """Count the usage of a call outside turns, and remove its reservation."""
    own = _locked(family)[conversation.pk]
    if own.running.pop(call_id, None) is not None:
        own.add(used, to_turn=False)
        own.save(update_fields=COUNTED)


def _locked(family: Sequence[RunLimits]) -> dict[int, RunMeter]:
    """Return the locked rows of all conversations of the family; missing ones of `family` are created."""
    pks = [limits.conversation_pk for limits in family]
    top = pks[-1]
    _lock_top(top)
    rows = {row.pk: row for row in RunMeter.objects.of_family(top, besides=pks).locked()}
    if not (missing := [pk for pk in pks if pk not in rows]):
        return rows
    for pk in missing:
        # A row is made at the first reservation; calls may have been counted before.
        tokens, nanos = _counted(pk)
        RunMeter.objects.get_or_create(pk=pk, defaults={"family": top, "tokens": tokens, "cost_nanos": nanos})
    _lock_top(top)
    return {row.pk: row for row in RunMeter.objects.of_family(top, besides=pks).locked()}


def _lock_top(top: int) -> None:
    # In a statement of its own, so that the next one sees all that is committed: one that waits for a lock
    # misses rows that were inserted meanwhile.
    if connection.features.has_select_for_update:  # elsewhere only one transaction writes at a time
        list(RunMeter.objects.filter(pk=top).select_for_update(no_key=True).values_list("pk"))


def _counted(conversation_pk: int) -> tuple[int, int]:
    """Return the tokens and the cost of all counted calls of a conversation."""
    used = ModelUse.objects.of(conversation_pk).total()
    return used.prompt_tokens + used.completion_tokens, used.cost_nanos


def _count(own: RunMeter, share: TurnShare) -> None:
    _drop_dead(own, share.epoch)
    own.begin_turn(share.turn_id, goes_on=share.is_first)
    own.add(share.ended, to_turn=True)


def _drop_dead(own: RunMeter, epoch: int) -> None:
    """Count the reservations of ended processes as used."""
    # Whether their calls were made is unknown, and a limit must not be exceeded.
    for place, call in list(own.running.items()):
        if not _is_alive(call, epoch, own.read_at):
            del own.running[place]
            own.add(_amounts_in(call), to_turn=place == LOOP)
            if place == LOOP:  # nothing else runs yet: the totals counted with events are complete
                own.tokens, own.cost_nanos = _counted(own.pk)


def _reached(
    family: Sequence[RunLimits], rows: dict[int, RunMeter], by_turn: Amounts | None, *, besides: str
) -> Reached | None:
    """Return the first limit that is reached, those of conversations before those of the turn.

    `besides` is the key of the call to decide about.
    """
    own = family[0].conversation_pk
    for limits in family:
        pk = limits.conversation_pk
        used = _used_below(pk, rows).plus(_reserved_below(pk, rows, own, besides))
        for limit in limits.of_conversation():
            # Each conversation has its own time: the agents of a family work in parallel.
            if limit.unit is Unit.SECONDS and pk != own:
                continue
            if limit.is_reached(used) and not (by_turn is None and limit.unit in _OF_TURNS):
                return Reached(limit, used, is_ancestors=pk != own)
    if by_turn is not None:
        for limit in family[0].of_turn():
            if limit.is_reached(by_turn):
                return Reached(limit, by_turn)
    return None


# Calls outside turns use neither.
_OF_TURNS = frozenset({Unit.ITERATIONS, Unit.SECONDS})


def _used_below(pk: int, rows: dict[int, RunMeter]) -> Amounts:
    """Return the usage of a conversation and of those that it has started, with its own time alone."""
    used = rows[pk].used
    for row in rows.values():
        if row.conversation.parent_id == pk and row.pk != pk:
            used = used.plus(_used_below(row.pk, rows)._replace(worked_ms=0))
    return used


def _reserved_below(pk: int, rows: dict[int, RunMeter], own: int, besides: str) -> Amounts:
    """Return the reservations of the running calls of these conversations."""
    reserved = Amounts()
    for place, call in rows[pk].running.items():
        is_in_question = pk == own and place == besides
        if not is_in_question and _is_alive(call, rows[pk].conversation.loop_epoch, rows[pk].read_at):
            reserved = reserved.plus(_amounts_in(call))
    for row in rows.values():
        if row.conversation.parent_id == pk and row.pk != pk:
            reserved = reserved.plus(_reserved_below(row.pk, rows, own, besides))
    return reserved


def _call(expected: Amounts, **facts: Any) -> dict[str, Any]:
    taken = {name: getattr(expected, name) for name in ("iterations", "tokens", "cost_nanos")}
    return {**taken, **facts}


def _amounts_in(call: dict[str, Any]) -> Amounts:
    return Amounts(call["iterations"], call["tokens"], call["cost_nanos"])


def _is_alive(call: dict[str, Any], epoch: int, now: datetime) -> bool:
    """Return whether a call may still run: its loop is the newest one, or its time is not over."""
    if "epoch" in call:
        return bool(call["epoch"] == epoch)
    # An end further ahead than any can be is of a clock that was put back.
    return bool(0.0 < call["until"] - now.timestamp() <= BESIDE_S + STEP_S)


class LimitState(NamedTuple):
    """One kind of limit: its value, and the usage."""

    name: str
    """As in `run_limits.NAMES`."""
    limit: Limit | None
    used: float
    """Calls, tokens, US dollars or seconds, of the newest turn or of the conversation with all below it."""

    @property
    def unit(self) -> Unit:
        return Unit(self.name.removeprefix("turn_"))

    @property
    def is_of_turn(self) -> bool:
        return self.name.startswith("turn_")


def states_of(conversation: ConversationRef) -> list[LimitState]:
    """Return the usage of each kind of limit, also of those without a limit, by a few queries."""
    limits = run_limits.limits_of(conversation.pk)
    own = RunMeter.objects.of(conversation).first()
    if own is None:
        tokens, nanos = _counted(conversation.pk)
        used, by_turn = Amounts(tokens=tokens, cost_nanos=nanos), Amounts()
    else:
        rows = {row.pk: row for row in RunMeter.objects.of_family(own.family)}
        used, by_turn = _used_below(conversation.pk, rows), own.used_by_turn
    found = limits.limits if limits is not None else {}
    states = [LimitState(name, found.get(name), 0.0) for name in run_limits.NAMES]
    return [
        state._replace(used=run_limits.used_of(state.unit, by_turn if state.is_of_turn else used))
        for state in states
    ]
