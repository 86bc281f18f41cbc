"""The agent's plan: all its states between two messages of the user are one card, at the first one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from convserver.rendering.cards import CallCard, CallOutcome, Entry, MessageCard, ResultCard, Task

# The outcomes of calls that changed the plan: none is a failure.
_MADE = frozenset({CallOutcome.NO_RESULT, CallOutcome.DONE})


@dataclass(kw_only=True, slots=True)
class Plan:
    """A plan with its changes."""

    states: list[Entry] = field(default_factory=list)
    """The calls that wrote it, or results whose calls are elsewhere; oldest first, never empty."""
    is_newest: bool = False  # whether no later plan is on the page


def gathered(shown: Iterable[Entry]) -> list[Entry | Plan]:
    """Return the entries with one plan in place of its changes up to the user's next message."""
    found: list[Entry | Plan] = []
    plan: Plan | None = None
    newest: Plan | None = None
    for entry in shown:
        if isinstance(entry.card, MessageCard) and entry.card.is_users:
            plan = None
        if not _is_state(entry):
            found.append(entry)
            continue
        if plan is None:
            plan = newest = Plan()
            found.append(plan)
        # A result that does not name its call repeats the tasks of it.
        is_repeated = isinstance(entry.card, ResultCard) and bool(plan.states)
        if not (is_repeated and tasks_in(entry) == tasks_in(plan.states[-1])):
            plan.states.append(entry)
    if newest is not None:
        newest.is_newest = True
    return found


def tasks_in(state: Entry) -> tuple[Task, ...]:
    """Return the tasks of a plan's state: those of the call, or those of its result if the call only read."""
    cards = [state.card, *(each.card for each in state.results)]
    lists = (card.tasks for card in cards if isinstance(card, CallCard | ResultCard))
    return next(filter(None, lists), ())


def _is_state(entry: Entry) -> bool:
    """Return whether this shows only a plan, without an approval to give or a failure."""
    match entry.card:
        case ResultCard(outcome=CallOutcome.DONE, tasks=tasks):
            return bool(tasks)
        case CallCard() as call:
            outcomes = {each.card.outcome for each in entry.results if isinstance(each.card, ResultCard)}
            is_made = (outcomes or {call.outcome}) <= _MADE
            empties = call.tool.icon == "tasks" and (call.given or {}).get("command") == "plan"
            return is_made and (bool(tasks_in(entry)) or empties)
        case _:
            return False
