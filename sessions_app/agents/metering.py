"""Reservations: before a model is called, what the call is expected to use is taken from the limits.

The topmost row of a conversation's family is locked first, then the rows of all its conversations are, and
the conversation's own is written. So calls at the same time, in whichever process, see each other: together
they go beyond a limit by at most one call of each loop. Nothing is locked after these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction

from conversations.models import ConversationRef
from sessions_app.agents.base import Usage
from sessions_app.models import Amounts, ModelUse, RunMeter
from sessions_app.models.model_use import NANOS
from sessions_app.models.run_meter import COUNTED
from sessions_app.settings import run_limits
from sessions_app.settings.run_limits import Limit, RunLimits, Unit
from sessions_app.shared_clock import STEP_S

LOOP = "loop"
"""The place of the call that a turn makes: one at a time."""
BESIDE_S = 120.0
"""A call beside the turns is over by then, or its process is gone."""


class Reached(NamedTuple):
    """A limit of which nothing is left."""

    limit: Limit
    used: Amounts
    is_ancestors: bool = False
    """Whether it is that of a conversation that has started this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What a turn has used since it was counted last."""

    turn_id: str
    epoch: int
    """The loop's."""
    call_id: str
    """The call that is to be made, or the last one that was reserved; empty before the first."""
    ended: Amounts
    is_first: bool
    """Whether the turn has just begun, or goes on after a pause."""
    asks: bool
    """Whether the turn pauses at a limit, and goes on once it is resumed."""


def used_so_far(meter: RunMeter | None, limit: Limit, turn_id: str) -> Amounts:
    """Return what was used of a limit by a conversation, or by a turn of it that begins or goes on now."""
    if meter is None:
        return Amounts()
    if not limit.is_of_turn:
        return meter.used
    return Amounts() if meter.is_spent or meter.turn_id != turn_id else meter.used_by_turn


def amounts_of(usage: Usage, *, is_of_turn: bool = True) -> Amounts:
    """Return what a call has used, or is expected to."""
    tokens = usage.prompt_tokens + usage.completion_tokens
    return Amounts(int(is_of_turn), tokens, round((usage.cost or 0.0) * NANOS))


@transaction.atomic
def reserve(
    conversation: ConversationRef,
    family: Sequence[RunLimits],
    share: Share,
    expected: Amounts,
    *,
    unpriced: str = "",
) -> tuple[Reached | None, bool]:
    """Count what a turn has used, and reserve a call that is expected to use so much.

    Return the limit that is reached, and then nothing is reserved; and whether the user is to be told that
    the price of the model `unpriced` is unknown. Repeated with the same call it changes nothing.
    """
    rows = _locked(family)
    own = rows[conversation.pk]
    if own.running.get(LOOP, {}).get("id") != share.call_id:
        _count(own, share)
    reached = _reached(family, rows, own.used_by_turn, besides=LOOP)
    own.is_spent = reached is not None and reached.limit.is_of_turn and share.asks
    taken = Amounts() if reached else expected
    own.running[LOOP] = _call(taken, id=share.call_id, epoch=share.epoch)
    tells = not reached and _is_untold(own, family, unpriced)
    own.save(update_fields=COUNTED)
    return reached, tells


@transaction.atomic
def settle(
    conversation: ConversationRef, family: Sequence[RunLimits], share: Share, *, is_spent: bool = False
) -> None:
    """Count what a turn has used that is over or waits, and let its reservation go."""
    own = _locked(family)[conversation.pk]
    if own.running.get(LOOP, {}).get("id", "") == share.call_id:
        _count(own, share)
        own.is_spent = own.is_spent or is_spent
        own.running.pop(LOOP, None)
        own.save(update_fields=COUNTED)


@transaction.atomic
def reserve_beside(
    conversation: ConversationRef, family: Sequence[RunLimits], call_id: str, expected: Amounts
) -> Reached | None:
    """Reserve a call that belongs to no turn. Return the limit that is reached, if one is."""
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
    """Count what such a call has used, and let its reservation go."""
    own = _locked(family)[conversation.pk]
    if own.running.pop(call_id, None) is not None:
        own.add(used, to_turn=False)
        own.save(update_fields=COUNTED)


def _locked(family: Sequence[RunLimits]) -> dict[int, RunMeter]:
    """Return the rows of all conversations of the family, locked; those of `family` are made if missing."""
    pks = [limits.conversation_pk for limits in family]
    top = pks[-1]
    _lock_top(top)
    rows = {row.pk: row for row in RunMeter.objects.of_family(top, besides=pks).locked()}
    missing = [pk for pk in pks if pk not in rows]
    if not missing:
        return rows
    for pk in missing:
        tokens, nanos = _counted(pk)
        RunMeter.objects.get_or_create(pk=pk, defaults={"family": top, "tokens": tokens, "cost_nanos": nanos})
    _lock_top(top)
    return {row.pk: row for row in RunMeter.objects.of_family(top, besides=pks).locked()}


def _lock_top(top: int) -> None:
    """Lock the topmost row in a statement of its own, so that the next one sees all that is committed.

    A statement that waits for a lock does not see the rows that were inserted meanwhile.
    """
    if connection.features.has_select_for_update:  # elsewhere only one transaction writes at a time
        list(RunMeter.objects.filter(pk=top).select_for_update(no_key=True).values_list("pk"))


def _counted(conversation_pk: int) -> tuple[int, int]:
    """Return the tokens and the cost of all calls of a conversation that have been counted."""
    used = ModelUse.objects.of(conversation_pk).total()
    return used.prompt_tokens + used.completion_tokens, used.cost_nanos


def _count(own: RunMeter, share: Share) -> None:
    _drop_dead(own, share.epoch)
    own.begin_turn(share.turn_id, goes_on=share.is_first)
    own.add(share.ended, to_turn=True)


def _drop_dead(own: RunMeter, epoch: int) -> None:
    """Let go what processes have reserved that are gone: nobody knows whether the calls were made."""
    for place, call in list(own.running.items()):
        if not _is_alive(call, epoch, own.read_at):
            del own.running[place]
            own.add(_amounts_in(call), to_turn=place == LOOP)
            if place == LOOP:  # nothing else is under way yet: what was counted with events is all
                own.tokens, own.cost_nanos = _counted(own.pk)


def _reached(
    family: Sequence[RunLimits], rows: dict[int, RunMeter], by_turn: Amounts | None, *, besides: str
) -> Reached | None:
    """Return the first limit that is reached: those of conversations come before those of the turn.

    `besides` is the place of the call in question.
    """
    own = family[0].conversation_pk
    for limits in family:
        pk = limits.conversation_pk
        used = _used_below(pk, rows).plus(_reserved_below(pk, rows, own, besides))
        for limit in limits.of_conversation():
            # The time is that of the conversation itself: the agents of several work side by side.
            if limit.unit is Unit.SECONDS and pk != own:
                continue
            if limit.is_reached(used) and not (by_turn is None and limit.unit in _OF_TURNS):
                return Reached(limit, used, is_ancestors=pk != own)
    if by_turn is not None:
        for limit in family[0].of_turn():
            if limit.is_reached(by_turn):
                return Reached(limit, by_turn)
    return None


_OF_TURNS = frozenset({Unit.ITERATIONS, Unit.SECONDS})
"""What calls beside the turns do not use."""


def _used_below(pk: int, rows: dict[int, RunMeter]) -> Amounts:
    """Return what a conversation and those that it has started have used, and its own time."""
    used = rows[pk].used
    for row in rows.values():
        if row.conversation.parent_id == pk and row.pk != pk:
            used = used.plus(_used_below(row.pk, rows)._replace(worked_ms=0))
    return used


def _reserved_below(pk: int, rows: dict[int, RunMeter], own: int, besides: str) -> Amounts:
    """Return what the calls reserve that are being made in these conversations."""
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
    """Say whether a call may be under way: its loop is the newest one, or its time is not over."""
    if "epoch" in call:
        return bool(call["epoch"] == epoch)
    return bool(0.0 < call["until"] - now.timestamp() <= BESIDE_S + STEP_S)


def _is_untold(own: RunMeter, family: Sequence[RunLimits], model: str) -> bool:
    """Say whether the user does not know yet that a limit of cost does not count this model, and note it."""
    if not model or model in own.unpriced_told or not any(limits.has(Unit.COST) for limits in family):
        return False
    own.unpriced_told.append(model)
    return True


class LimitState(NamedTuple):
    """One of the things that have limits: how much may be used of it, and how much was."""

    name: str
    """As in `run_limits.NAMES`."""
    limit: Limit | None
    used: float
    """Calls, tokens, US dollars or seconds: of the newest turn, or of the conversation with all below it."""

    @property
    def unit(self) -> Unit:
        """Return what is counted."""
        return Unit(self.name.removeprefix("turn_"))

    @property
    def is_of_turn(self) -> bool:
        """Say whether each turn has the limit."""
        return self.name.startswith("turn_")


def states_of(conversation: ConversationRef) -> list[LimitState]:
    """Return what was used of each limit, and of what has none, by a few queries."""
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
